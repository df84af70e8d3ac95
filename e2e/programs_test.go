package e2e

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cubesandbox/e2e/lab"
)

// TestTheSentryIsBuiltOfThePatchesAndOfNoPlace: it says which patches, and names neither
// checkout nor cache, in which the copy of gVisor is: it is the same wherever it is built.
func TestTheSentryIsBuiltOfThePatchesAndOfNoPlace(t *testing.T) {
	made := filepath.Join(lab.Root(), ".cache/gvisor")
	version, err := os.ReadFile(filepath.Join(made, "version"))
	noError(t, err, "what the copy is called; make patch makes it")
	if got, want := l.Engine.Version(), strings.TrimSpace(string(version)); !strings.HasPrefix(got, want+"-") {
		t.Errorf("the engine is %s, want %s", got, want)
	}
	sentry := filepath.Join(l.Options().BinDir, "cube-sentry")
	info, err := buildinfo.ReadFile(sentry)
	noError(t, err, "what the sentry is built of")
	replaced := ""
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" && m.Replace != nil {
			replaced = m.Replace.Path
		}
	}
	if replaced != "./.cache/gvisor/src" {
		t.Errorf("it is built of %q in gVisor's place, want the link to the copy", replaced)
	}
	program, err := os.ReadFile(sentry)
	noError(t, err, "the sentry")
	copied, err := os.Readlink(filepath.Join(made, "src"))
	noError(t, err, "the link to the copy")
	for _, place := range []string{lab.Root(), copied} {
		if bytes.Contains(program, []byte(place)) {
			t.Errorf("it names %s", place)
		}
	}
}

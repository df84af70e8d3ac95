package house

import (
	"bytes"
	"strings"
	"testing"
)

// The words are put together here so that this file may hold them.
var (
	unfinished = []string{"TO" + "DO", "FIX" + "ME", "X" + "XX"}
	// Paths of one machine and hosts of package registries: the one is nowhere
	// else, the other is each machine's own matter.
	oneMachine = []string{
		"/wo" + "rk/", "/tmp/" + "w/", "/root/" + "go/", "/root/" + ".",
		"deb.debian" + ".org", "security.debian" + ".org", "snapshot.debian" + ".org",
		"proxy.golang" + ".org", "sum.golang" + ".org", "registry.npmjs" + ".org",
		"pypi" + ".org", "pythonhosted" + ".org", "crates" + ".io", "repo1.maven" + ".org",
	}
)

func TestNothingTrackedIsUnfinishedOrOfOneMachine(t *testing.T) {
	tr := readTree(t)
	for _, name := range tr.files {
		text := tr.read(t, name)
		if bytes.IndexByte(text, 0) >= 0 {
			continue // no text
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, word := range unfinished {
				if strings.Contains(line, word) {
					t.Errorf("%s:%d has %q: do it, or file an issue", name, i+1, word)
				}
			}
			for _, place := range oneMachine {
				if strings.Contains(line, place) {
					t.Errorf("%s:%d names %q, which is of one machine", name, i+1, place)
				}
			}
		}
	}
}

func TestNoLargeFileIsTracked(t *testing.T) {
	tr := readTree(t)
	for _, name := range tr.files {
		if n := len(tr.read(t, name)); n > 1<<20 {
			t.Errorf("%s has %d bytes: build it, do not keep it", name, n)
		}
	}
}

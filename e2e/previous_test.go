package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cubesandbox/template"
)

const (
	// previousEngine is how a sentry of an earlier version calls itself; previousAgent,
	// an agent.
	previousEngine = "20250101000000-0123456789ab-stock-amd64"
	previousAgent  = "0.0.1-previous"
)

// previousPrograms returns a folder of programs as an earlier version had them: a
// sentry with another version, so that neither can restore what the other has saved,
// and another agent. It is kept by the content of the present ones.
func previousPrograms(t *testing.T, present, cache string) string {
	t.Helper()
	names := []string{"cube-sentry", "cube-network", "cube-guest.erofs"}
	h := sha256.New()
	fmt.Fprintln(h, previousEngine, previousAgent)
	for _, name := range names {
		f, err := os.Open(filepath.Join(present, name))
		noError(t, err, "the present programs")
		_, err = io.Copy(h, f)
		f.Close()
		noError(t, err, "read "+name)
	}
	dir := filepath.Join(cache, "previous", hex.EncodeToString(h.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	noError(t, os.MkdirAll(filepath.Dir(dir), 0o755), "the cache")
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	noError(t, err, "the cache")
	defer os.RemoveAll(tmp)
	build(t, tmp, "cube-sentry", "-s -w -X gvisor.dev/gvisor/runsc/version.version="+previousEngine)
	build(t, tmp, "cube-network", "-s -w")
	build(t, tmp, "cube-guest", "-s -w -E cube_guest_entry -X cubesandbox/guest/agent.Version="+previousAgent)
	noError(t, template.PackProgram(t.Context(), filepath.Join(tmp, "cube-guest"), "cube-guest", filepath.Join(tmp, "cube-guest.erofs")), "pack the agent")
	if err := os.Rename(tmp, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // somebody was quicker
			t.Fatal(err)
		}
	}
	return dir
}

func build(t *testing.T, dir, name, flags string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+flags,
		"-o", filepath.Join(dir, name), "cubesandbox/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", name, err, out)
	}
}

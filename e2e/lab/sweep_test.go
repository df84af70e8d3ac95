package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"cubesandbox/internal/local"
)

// Packages with sandboxes start together, and each sweeps before it begins.
func TestThoseWhoSweepTogetherDoNotMeet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("tests with sandboxes are run as root")
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s%d-0", prefix, dead.Process.Pid)
	o := local.Options{
		RunDir:   filepath.Join("/run", name),
		StateDir: filepath.Join(os.TempDir(), name, "state"),
		BinDir:   filepath.Join(moduleRoot(), "bin"),
	}
	t.Cleanup(func() { os.RemoveAll(o.RunDir); os.RemoveAll(filepath.Dir(o.StateDir)) })
	left, err := local.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Close(); err != nil { // its processes go on, as after a kill
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, dir := range []string{o.RunDir, o.StateDir} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", dir, err)
		}
	}
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cubesandbox/e2e/lab"
	"cubesandbox/internal/local"
)

// otherBuild is the directory of our programs with one of them built anew: the same
// version and another file.
func otherBuild(t *testing.T, name string) string {
	t.Helper()
	from, to := l.Options().BinDir, t.TempDir()
	for _, p := range []string{"cube-sentry", "cube-network", "cube-guest.erofs"} {
		b, err := os.ReadFile(filepath.Join(from, p))
		noError(t, err, "read a program")
		if p == name {
			b = append(b, 0) // behind the end of the program
		}
		noError(t, os.WriteFile(filepath.Join(to, p), b, 0o755), "write a program")
	}
	return to
}

// TestANewerCubeNetworkTakesOverAndSandboxesRunOn: an engine that opens with another
// build of cube-network replaces the one that runs. Connections are reset, and nothing
// else is lost.
func TestANewerCubeNetworkTakesOverAndSandboxesRunOn(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before := l.Check(t, id)
	c := connect(t, id)
	old, err := l.Network(t.Context())
	noError(t, err, "network process")
	opt := l.Options()
	opt.BinDir = otherBuild(t, "cube-network")
	noError(t, l.Session.Close(), "close the engine")
	s, err := local.Open(t.Context(), opt)
	noError(t, err, "open another build")
	l.Session = s
	now, err := l.Network(t.Context())
	if err != nil || now == old {
		t.Errorf("network process %d (%v), want another than %d", now, err, old)
	}
	if err := lab.Until(10*time.Second, "the old one is gone", func() error {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", old)); err == nil {
			return fmt.Errorf("process %d is there", old)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	c.ends()
	if got := l.Check(t, id); got.Identity != before.Identity || got.PID != before.PID {
		t.Errorf("got %+v, want the same program as before, %+v", got, before)
	}
	connect(t, id).works()
	runs(t, id, 1)
	noError(t, l.Reopen(t.Context()), "open the first build again")
	connect(t, id).works()
}

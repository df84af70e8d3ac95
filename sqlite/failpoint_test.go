package sqlite

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

// childVariable makes a test binary apply one batch to the database at its value, with
// the fail points of its environment.
const childVariable = "CUBE_SQLITE_CHILD"

// both are two records, or one, of a batch.
func both(n int) []cube.Record { return []cube.Record{{ID: "a"}, {ID: "b"}}[:n] }

func applyOnce(path string) error {
	if err := failpoint.FromEnv(); err != nil {
		return err
	}
	s, err := Open(path)
	if err != nil {
		return err
	}
	n := 2
	if os.Getenv(childVariable+"_ONE") != "" {
		n = 1
	}
	return write(s, both(n)...)
}

func TestKilledBeforeACommitNothingIsThereAndAfterItAll(t *testing.T) {
	for _, n := range []int{1, 2} {
		for point, want := range map[string]int{"sqlite/apply/before-commit": 0, "sqlite/apply/committed": n} {
			path := filepath.Join(t.TempDir(), "db")
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+path, failpoint.Env+"="+point+"=kill")
			if n == 1 {
				cmd.Env = append(cmd.Env, childVariable+"_ONE=1")
			}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != -1 {
				t.Fatalf("%s: got %v, want killed by a signal: %s", point, err, out)
			}
			if all, err := open(t, path).Sandboxes(t.Context()); err != nil || len(all) != want {
				t.Errorf("%d records, killed at %s: got %d (%v), want %d", n, point, len(all), err, want)
			}
		}
	}
}

func TestAnErrorBeforeACommitLeavesNothingAndTheNextBatchWorks(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	t.Cleanup(func() {
		if err := failpoint.Arm(""); err != nil {
			t.Error(err)
		}
	})
	for _, n := range []int{1, 2} {
		if err := failpoint.Arm("sqlite/apply/before-commit=error(no)@1"); err != nil {
			t.Fatal(err)
		}
		b := cube.Batch{Sandboxes: both(n)}
		if err := s.Apply(context.Background(), b); !errors.Is(err, failpoint.ErrInjected) {
			t.Errorf("got %v, want the one that was injected", err)
		}
		if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("got %d (%v), want nothing", len(all), err)
		}
		if err := s.Apply(context.Background(), b); err != nil {
			t.Error(err)
		}
		if err := s.Apply(context.Background(), cube.Batch{DropSandboxes: []cube.SandboxID{"a", "b"}}); err != nil {
			t.Error(err)
		}
	}
}

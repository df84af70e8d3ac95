package leak

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// start is a place that starts goroutines.
func start(f func()) { go f() }

// place is a directory of ours with nothing in it.
func place(t *testing.T) Where {
	t.Helper()
	dir := t.TempDir()
	w := Where{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Cgroup: "cube-leak-test"}
	for _, d := range []string{w.RunDir, w.StateDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func TestEachKindOfLeakIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		leak func(t *testing.T, w Where) (undo func())
		want []string // parts of lines
	}{
		"process": {func(t *testing.T, _ Where) func() {
			cmd := exec.Command("sleep", "1234")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() { cmd.Process.Kill(); cmd.Wait() }
		}, []string{"+1 descriptor of this test: anon_inode:[pidfd]", "+1 process sleep 1234"}},
		"zombie": {func(t *testing.T, w Where) func() {
			cmd := exec.Command("true")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Waits for its end and leaves it unreaped.
			if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
				t.Fatal(err)
			}
			return func() { cmd.Wait() }
		}, []string{"+1 descriptor of this test: anon_inode:[pidfd]", "+1 process [true] (zombie)"}},
		"descriptor": {func(t *testing.T, w Where) func() {
			f, err := os.Open(w.StateDir)
			if err != nil {
				t.Fatal(err)
			}
			return func() { f.Close() }
		}, []string{"+1 descriptor of this test: /"}},
		"socket": {func(t *testing.T, w Where) func() {
			l, err := net.Listen("unix", filepath.Join(w.RunDir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			return func() { l.Close() }
		}, []string{"+1 descriptor of this test: socket", "+1 file ", "+1 socket "}},
		"file": {func(t *testing.T, w Where) func() {
			path := filepath.Join(w.StateDir, "left")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { os.Remove(path) }
		}, []string{"+1 file "}},
		"mount": {func(t *testing.T, w Where) func() {
			if err := syscall.Mount("none", w.RunDir, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			return func() { syscall.Unmount(w.RunDir, 0) }
		}, []string{"+1 mount "}},
		"cgroup": {func(t *testing.T, w Where) func() {
			root := "/sys/fs/cgroup"
			if _, err := os.Stat(root + "/memory"); err == nil {
				root += "/memory"
			}
			path := filepath.Join(root, w.Cgroup)
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			return func() { os.Remove(path) }
		}, []string{"+1 cgroup "}},
		"goroutine": {func(t *testing.T, _ Where) func() {
			stop, done := make(chan struct{}), make(chan struct{})
			start(func() { <-stop; close(done) })
			return func() { close(stop); <-done }
		}, []string{"+1 goroutine "}},
	} {
		t.Run(name, func(t *testing.T) {
			w := place(t)
			before, err := Take(w)
			if err != nil {
				t.Fatal(err)
			}
			undo := c.leak(t, w)
			err = Check(w, before, 0)
			undo()
			if err == nil {
				t.Fatal("nothing was found")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Errorf("got lines %q, want %d: %q", lines, len(c.want), c.want)
			}
			for i := range min(len(lines), len(c.want)) {
				if !strings.Contains(lines[i], c.want[i]) {
					t.Errorf("got line %q, want it to contain %q", lines[i], c.want[i])
				}
			}
			if err := Check(w, before, 5*time.Second); err != nil {
				t.Errorf("after it was taken away: %v", err)
			}
		})
	}
}

func TestWhatGoesAwayInTimeIsNoLeak(t *testing.T) {
	w := place(t)
	before, err := Take(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "0.3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); cmd.Wait() }()
	if err := Check(w, before, 10*time.Second); err != nil {
		t.Errorf("got %v, want patience", err)
	}
	<-done
}

func TestAMissingServerIsADifference(t *testing.T) {
	w := place(t)
	l, err := net.Listen("unix", filepath.Join(w.RunDir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := Take(w)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Check(w, before, 0); err == nil || !strings.Contains(err.Error(), "-1 socket ") {
		t.Errorf("got %v, want the socket missing", err)
	}
}

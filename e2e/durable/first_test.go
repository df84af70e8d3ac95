package durable

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cubesandbox/e2e/lab"
)

// TestAFirstTemplateOnASmallDiskIsWholeOrNotThere: the state directory of an
// installation is empty, and on a file system that grows until everything fits: engine,
// root file system, image. Until then each build says that there is no room, and leaves
// no image and nothing half written; what it left does not spoil the next one.
func TestAFirstTemplateOnASmallDiskIsWholeOrNotThere(t *testing.T) {
	s.Guard(t)
	t.Cleanup(func() { os.RemoveAll(filepath.Join(s.Where.RunDir, "small")) })
	dir := smallDisk(t)
	step := int64(64)
	if lab.Form() != "" {
		step = 16
	}
	for mib := int64(1); mib < 2048; mib += step {
		resize(t, dir, mib)
		out, err := firstTemplate(t, dir, "base")
		if err == nil {
			t.Logf("it fits into %d MiB", mib)
			if out, err := firstTemplate(t, dir, "base"); err != nil {
				t.Errorf("again: %v: %s", err, out)
			}
			return
		}
		if !strings.Contains(out, "no space left") || !strings.Contains(out, "free space") {
			t.Errorf("%d MiB: %v: %s", mib, err, out)
		}
		for _, what := range []string{"images", "staging", "names"} {
			left, err := filepath.Glob(filepath.Join(dir, what, "*"))
			if err != nil || len(left) != 0 {
				t.Errorf("%d MiB: left behind: %q (%v)", mib, left, err)
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Error("it never fits")
}

// smallDisk mounts a file system of memory, with hardly any room. Sentries, which run
// as nobody, pass through what is above it.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cube-small-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=1m,mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Until(answerTime, "nothing uses "+dir, func() error { return unix.Unmount(dir, 0) }); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func resize(t *testing.T, dir string, mib int64) {
	t.Helper()
	if err := unix.Mount("small", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Fatal(err)
	}
}

// firstTemplate builds a template where no server is.
func firstTemplate(t *testing.T, stateDir, name string) (string, error) {
	t.Helper()
	bin := s.Options().BinDir
	cmd := exec.Command(filepath.Join(bin, "cube"), "template", "build", name,
		"--state-dir", stateDir, "--run-dir", filepath.Join(s.Where.RunDir, "small"), "--bin-dir", bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

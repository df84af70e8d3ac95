package confine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cubesandbox/network/confine"
)

// forbidden builds the program that is confined. It is static: nothing can be
// loaded where it ends up.
func forbidden(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forbidden")
	build := exec.Command("go", "build", "-o", path, "./testdata/forbidden")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

func TestForbiddenCallsEndTheProcess(t *testing.T) {
	program := forbidden(t)
	for _, call := range []string{"execve", "open", "stat", "inet socket", "unix socket", "packet socket", "seqpacket", "connect",
		"kill", "tgkill", "ptrace", "fork", "clone3", "setuid", "unshare", "mount", "map code", "map a file", "mprotect",
		"setsockopt", "ioctl", "dumpable", "prlimit"} {
		out, err := exec.Command(program, call).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
			t.Errorf("%s: got %v, %s, want to be ended by SIGSYS", call, err, out)
		}
	}
	for _, call := range []string{"nothing", "go on"} {
		if out, err := exec.Command(program, call).CombinedOutput(); err != nil {
			t.Errorf("%s: got %v, %s, want nothing to happen", call, err, out)
		}
	}
}

func TestDropRefusesRoot(t *testing.T) {
	for _, id := range [][2]int{{0, 1}, {1, 0}, {-1, 1}} {
		if err := confine.Drop(id[0], id[1]); err == nil || !strings.Contains(err.Error(), "positive") {
			t.Errorf("uid %d, gid %d: got %v, want a refusal", id[0], id[1], err)
		}
	}
}

func TestCheckSeesAnUnconfinedProcess(t *testing.T) {
	if err := confine.Check(os.Getuid(), os.Getgid()); err == nil {
		t.Error("this test passed for a confined process")
	}
}

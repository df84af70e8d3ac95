package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/spawn"

	"golang.org/x/sys/unix"
)

func script(text string) spawn.Request {
	return spawn.Request{User: "root", Cmd: "/bin/sh", Args: []string{"-c", text}}
}

func TestRunReturnsOutputAndStatusAndIsInNoList(t *testing.T) {
	_, table, _ := serve(t)
	table.SetEnv(map[string]string{"A": "sandbox", "B": "sandbox"})
	q := script("echo $A $B; echo err >&2; read x || echo empty; exit 3")
	q.Env = []string{"B=hook"}
	out, status, err := table.Run(t.Context(), q, 1000)
	if err != nil || status.ExitStatus() != 3 || string(out) != "sandbox hook\nerr\nempty\n" {
		t.Errorf("%q, %v, %v", out, status, err)
	}
	if n := len(table.List()); n != 0 || table.Running() != 0 || table.Active() {
		t.Errorf("%d listed, %d running, active %t", n, table.Running(), table.Active())
	}
}

func TestRunKeepsTheFirstOfMuchOutput(t *testing.T) {
	_, table, _ := serve(t)
	out, status, err := table.Run(t.Context(), script("head -c 3000000 /dev/zero | tr '\\0' x; echo last >&2"), 100)
	if err != nil || status.ExitStatus() != 0 || string(out) != strings.Repeat("x", 100) {
		t.Errorf("%q, %v, %v", out, status, err)
	}
}

func TestRunKillsTheWholeTreeAtItsLimit(t *testing.T) {
	_, table, h := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	out, status, err := table.Run(ctx, script("echo begun; sleep 1000 & sleep 1000; echo never"), 100)
	if !errors.Is(err, context.DeadlineExceeded) || !status.Signaled() || string(out) != "begun\n" || time.Since(began) > 10*time.Second {
		t.Errorf("%q, %v, %v after %v", out, status, err, time.Since(began))
	}
	h.wait("1") // returns when nothing is left in its group
	if table.Active() {
		t.Error("something of it is still there")
	}
}

// TestWhatARunLeavesBehindGoesOn: also when it writes, and more than a pipe holds, to the
// output that it has from the run.
func TestWhatARunLeavesBehindGoesOn(t *testing.T) {
	_, table, h := serve(t)
	start, alive := fifo(t), fifo(t)
	left := fmt.Sprintf("(read x <%s; head -c 300000 /dev/zero && echo err >&2 && echo yes >%s; exec sleep 1000) & echo done", start.Name(), alive.Name())
	out, status, err := table.Run(t.Context(), script(left), 100)
	if err != nil || status.ExitStatus() != 0 || string(out) != "done\n" {
		t.Errorf("%q, %v, %v", out, status, err)
	}
	if !table.Active() {
		t.Error("what it has left behind is gone")
	}
	start.WriteString("now\n")
	alive.SetReadDeadline(time.Now().Add(20 * time.Second))
	said := make([]byte, 10)
	if n, err := alive.Read(said); string(said[:n]) != "yes\n" {
		t.Errorf("after it had written it said %q, %v", said[:n], err)
	}
	h.Kill("1")
	h.wait("1")
}

// fifo makes a named pipe and opens it at both ends.
func fifo(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

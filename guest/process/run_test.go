package process

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/spawn"
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

func TestWhatARunLeavesBehindGoesOn(t *testing.T) {
	_, table, h := serve(t)
	out, status, err := table.Run(t.Context(), script("sleep 1000 >/dev/null 2>&1 & echo done"), 100)
	if err != nil || status.ExitStatus() != 0 || string(out) != "done\n" {
		t.Errorf("%q, %v, %v", out, status, err)
	}
	if !table.Active() {
		t.Error("what it has left behind is gone")
	}
	h.Kill("1")
	h.wait("1")
}

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/guest/agentclient"
)

func noError(t *testing.T, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// witness makes a sandbox in which the witness runs.
func witness(t *testing.T) cube.SandboxID {
	t.Helper()
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Witness})
	noError(t, err, "create")
	return s.ID
}

func save(t *testing.T, id cube.SandboxID) cube.ImageID {
	t.Helper()
	img, err := l.Engine.Save(t.Context(), id, cube.NewSnapshotID())
	noError(t, err, "save")
	return img.ID
}

func clone(t *testing.T, id cube.SandboxID, n int) []cube.SandboxID {
	t.Helper()
	specs := make([]cube.CreateSpec, n)
	for i := range specs {
		specs[i].ID = cube.NewSandboxID()
	}
	_, err := l.Engine.Clone(t.Context(), id, specs, 0)
	noError(t, err, "clone")
	ids := make([]cube.SandboxID, n)
	for i := range specs {
		ids[i] = specs[i].ID
	}
	return ids
}

// sh runs a shell command as root and returns its output; it must succeed.
func sh(t *testing.T, id cube.SandboxID, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := l.Run(ctx, id, "/bin/sh", "-c", command)
	if err != nil {
		s, serr := l.Engine.Sandbox(t.Context(), id)
		t.Fatalf("%s: %v; the sandbox is %s, %+v %v", command, err, s.State, s.Death, serr)
	}
	if out.Exit != 0 {
		t.Fatalf("%s: exit status %d: %s%s", command, out.Exit, out.Stdout, out.Stderr)
	}
	return strings.TrimSpace(string(out.Stdout))
}

// line is a connection to the witness's echo server.
type line struct {
	t *testing.T
	net.Conn
	r        *bufio.Reader
	n        int
	patience time.Duration // how long a line may take
}

func connect(t *testing.T, id cube.SandboxID) *line {
	t.Helper()
	return connectBy(t, l.Engine, id)
}

func connectBy(t *testing.T, e cube.Engine, id cube.SandboxID) *line {
	t.Helper()
	c, err := e.Dial(t.Context(), id, 0, lab.EchoPort)
	noError(t, err, "dial")
	t.Cleanup(func() { c.Close() })
	ln := &line{t: t, Conn: c, r: bufio.NewReader(c), patience: time.Second}
	ln.works()
	return ln
}

// say sends a line and wants it back in time.
func (ln *line) say() error {
	ln.n++
	want := fmt.Sprintf("%d %s\n", ln.n, strings.Repeat("x", 1000))
	if err := ln.SetDeadline(time.Now().Add(ln.patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(ln, want); err != nil {
		return err
	}
	got, err := ln.r.ReadString('\n')
	if err == nil && got != want {
		err = fmt.Errorf("got %.20q back, want %.20q", got, want)
	}
	return err
}

func (ln *line) works() {
	ln.t.Helper()
	if err := ln.say(); err != nil {
		ln.t.Errorf("a connection from before: %v", err)
	}
}

// ends waits until the connection is gone.
func (ln *line) ends() {
	ln.t.Helper()
	noError(ln.t, ln.SetDeadline(time.Now().Add(5*time.Second)), "deadline")
	if _, err := ln.r.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		ln.t.Errorf("a connection whose other end is gone: got %v, want its end", err)
	}
}

// runs checks state and generation.
func runs(t *testing.T, id cube.SandboxID, gen cube.Generation) {
	t.Helper()
	s, err := l.Engine.Sandbox(t.Context(), id)
	noError(t, err, "sandbox")
	if s.State != cube.StateRunning || s.Generation != gen {
		t.Errorf("sandbox %s: got %s in generation %d (death %+v), want running in generation %d", id, s.State, s.Generation, s.Death, gen)
	}
}

// answersAsBefore is what a sandbox must do after a verb on it has failed: answer
// within a second, as the same program, over connections from before too.
func answersAsBefore(t *testing.T, id cube.SandboxID, before lab.Life, c *line) {
	t.Helper()
	c.works() // has a deadline of one second
	got := l.Check(t, id)
	if got.Identity != before.Identity || got.PID != before.PID || got.Uses != before.Uses+1 {
		t.Errorf("got %+v, want the life from before, %+v, used once more", got, before)
	}
	runs(t, id, 1)
}

// event waits for one of a kind about a sandbox.
func event(t *testing.T, events <-chan cube.Event, kind cube.EventKind, id cube.SandboxID) cube.Event {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatalf("events ended before %s of %s", kind, id)
			}
			if ev.Kind == kind && ev.Sandbox == id {
				return ev
			}
		case <-timeout:
			t.Fatalf("no event %s of %s within 20 s", kind, id)
		}
	}
}

// rootRun runs a program as root.
var rootRun = agentclient.RunOptions{User: "root", Cwd: "/"}

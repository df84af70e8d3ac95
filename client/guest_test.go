package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/client/clienttest"
)

// inside returns the inside of a new sandbox.
func inside(t *testing.T) (*clienttest.Server, *client.Guest) {
	t.Helper()
	s := clienttest.New(t)
	c := s.Client(t)
	b, err := c.Create(t.Context(), client.NewSandbox{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	return s, g
}

func TestAProgramsOutputAndStatusComeBack(t *testing.T) {
	_, g := inside(t)
	for _, c := range []struct {
		argv           []string
		code           int
		stdout, stderr string
		status         string
	}{
		{[]string{"echo", "a", "b"}, 0, "a b\n", "", "exit status 0"},
		{[]string{"complain", "no"}, 0, "", "no\n", "exit status 0"},
		{[]string{"exit", "7"}, 7, "", "", "exit status 7"},
		{[]string{"signal", "9"}, -1, "", "", "signal: killed"},
		{[]string{"whoami"}, 0, "root in /srv with 1\n", "", "exit status 0"},
	} {
		var stdout, stderr bytes.Buffer
		exit, err := g.Run(t.Context(), client.Command{
			Argv: c.argv, Stdout: &stdout, Stderr: &stderr, User: "root", Cwd: "/srv", Env: map[string]string{"A": "1"},
		})
		if err != nil || exit.Code != c.code || exit.Status != c.status || stdout.String() != c.stdout || stderr.String() != c.stderr {
			t.Errorf("%q: got %+v, %q, %q, %v", c.argv, exit, stdout.String(), stderr.String(), err)
		}
	}
}

func TestStandardInputReachesTheProgramAndIsClosed(t *testing.T) {
	_, g := inside(t)
	long := strings.Repeat("0123456789abcdef", 64<<10) // more than one message
	var out bytes.Buffer
	if _, err := g.Run(t.Context(), client.Command{Argv: []string{"cat"}, Stdin: strings.NewReader(long), Stdout: &out}); err != nil || out.String() != long {
		t.Errorf("got %d of %d bytes, %v", out.Len(), len(long), err)
	}
	// Without standard input there is none to wait for.
	if _, err := g.Run(t.Context(), client.Command{Argv: []string{"cat"}}); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfTheCallerKillsTheProgram(t *testing.T) {
	s, g := inside(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := begin(ctx, t, s, g, client.Command{Argv: []string{"forever"}, Stdin: r})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	w.Close()
	for s.Running() != 0 { // go test's own time limit ends this
		<-time.After(time.Millisecond)
	}
}

// begin runs a command and returns when it does.
func begin(ctx context.Context, t *testing.T, s *clienttest.Server, g *client.Guest, c client.Command) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := g.Run(ctx, c)
		done <- err
	}()
	for s.Running() == 0 {
		select {
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	return done
}

func TestAConnectionThatIsCutSaysWhatBecameOfTheSandbox(t *testing.T) {
	s, g := inside(t)
	done := begin(t.Context(), t, s, g, client.Command{Argv: []string{"forever"}})
	s.Cut()
	if err := <-done; !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("the sandbox runs: got %v", err)
	}
	for s.Running() != 0 { // it was killed, since nobody listens any more
		<-time.After(time.Millisecond)
	}
	done = begin(t.Context(), t, s, g, client.Command{Argv: []string{"forever"}})
	for id := range s.States() {
		if err := s.Client(t).Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	s.Cut()
	if err := <-done; !errors.Is(err, cube.ErrDead) {
		t.Errorf("the sandbox was killed: got %v", err)
	}
}

func TestAServerThatStopsLeavesTheProgramAlone(t *testing.T) {
	_, g := inside(t)
	_, err := g.Run(t.Context(), client.Command{Argv: []string{"stop"}})
	if !errors.Is(err, client.ErrStopped) || errors.Is(err, cube.ErrUnavailable) || !strings.Contains(err.Error(), "goes on as process 1") {
		t.Errorf("got %v", err)
	}
	_, err = g.Run(t.Context(), client.Command{Argv: []string{"stop before"}})
	if !errors.Is(err, client.ErrStopped) || !strings.Contains(err.Error(), "not known") || strings.Contains(err.Error(), "process") {
		t.Errorf("before it began: got %v", err)
	}
}

func TestTheTimeOfAProgramIsItsOwn(t *testing.T) {
	_, g := inside(t)
	if _, err := g.Run(t.Context(), client.Command{Argv: []string{"forever"}, Timeout: 30 * time.Millisecond}); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("got %v, want that its time was over", err)
	}
}

func TestATerminalHasItsSizeAndFollowsItsWindow(t *testing.T) {
	_, g := inside(t)
	resize := make(chan client.Size)
	in, keys := io.Pipe()
	screen, out := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := g.Run(t.Context(), client.Command{
			Argv: []string{"size"}, Terminal: &client.Size{Rows: 24, Cols: 80}, Resize: resize, Stdin: in, Stdout: out,
		})
		out.Close()
		done <- err
	}()
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(screen, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	read("24x80\r\n")
	resize <- client.Size{Rows: 50, Cols: 100}
	read("50x100\r\n")
	keys.Write([]byte("q"))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWhatTheAgentAndTheDataPlaneRefuseIsTold(t *testing.T) {
	s, g := inside(t)
	if _, err := g.Run(t.Context(), client.Command{Argv: []string{"nope"}}); !errors.Is(err, cube.ErrInvalid) || !strings.Contains(err.Error(), "nope: no such program") {
		t.Errorf("a program that is not there: got %v", err)
	}
	if _, err := g.Run(t.Context(), client.Command{}); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("no program: got %v", err)
	}
	stranger, err := s.Client(t).Guest(cube.NewSandboxID(), "")
	if err != nil {
		t.Fatal(err)
	}
	var said *client.Error
	if _, err := stranger.Run(t.Context(), client.Command{Argv: []string{"echo"}}); !errors.Is(err, cube.ErrNotFound) || !errors.As(err, &said) || said.Status != 502 {
		t.Errorf("a sandbox that is not there: got %v", err)
	}
	if err := stranger.Health(t.Context()); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("its health: got %v", err)
	}
	for id := range s.States() {
		wrong, err := s.Client(t).Guest(id, "wrong")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wrong.Run(t.Context(), client.Command{Argv: []string{"echo"}}); !errors.Is(err, client.ErrUnauthorized) {
			t.Errorf("a wrong token: got %v", err)
		}
		if err := wrong.Health(t.Context()); err != nil {
			t.Errorf("health, which needs none: got %v", err)
		}
	}
}

func TestFilesAreCarriedBothWays(t *testing.T) {
	_, g := inside(t)
	ctx, long := t.Context(), strings.Repeat("x", 1<<20)
	if err := g.WriteFile(ctx, "root", "/a b?", strings.NewReader(long)); err != nil {
		t.Fatal(err)
	}
	f, err := g.ReadFile(ctx, "root", "/a b?")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != long {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
	if _, err := g.ReadFile(ctx, "", "/none"); !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), "/none") {
		t.Errorf("a file that is not there: got %v", err)
	}
}

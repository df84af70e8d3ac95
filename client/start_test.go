package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/client/clienttest"
)

// TestStartSaysWhetherTheProgramMayRun: where the agent has said no it does not; where the
// answer is lost nobody knows.
func TestStartSaysWhetherTheProgramMayRun(t *testing.T) {
	s, g := inside(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	far, err := client.New(client.Options{APIURL: "http://127.0.0.1:1", SandboxURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := far.Guest(cube.NewSandboxID(), "")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := s.Client(t).Guest(cube.NewSandboxID(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		ctx   context.Context
		g     *client.Guest
		argv  string
		want  error
		maybe bool
	}{
		{"no such program", t.Context(), g, "never", cube.ErrInvalid, false},
		{"no such sandbox", t.Context(), stranger, "forever", cube.ErrNotFound, false},
		{"no server", t.Context(), nobody, "forever", client.ErrUnreachable, false},
		{"no caller", over, g, "forever", context.Canceled, false},
		{"a server that stops", t.Context(), g, "stop before", client.ErrStopped, true},
	} {
		pid, at, err := c.g.Start(c.ctx, client.Command{Argv: []string{c.argv}})
		if pid != 0 || at != (client.Position{}) || !errors.Is(err, c.want) || errors.Is(err, client.ErrMaybeStarted) != c.maybe {
			t.Errorf("%s: got %d, %+v, %v", c.what, pid, at, err)
		}
	}
	if n := s.Running(); n != 0 {
		t.Errorf("%d programs run", n)
	}
}

// TestStartThatEndsBeforeItsProgramSaysThatItMayRun: with its context, and with its connection.
func TestStartThatEndsBeforeItsProgramSaysThatItMayRun(t *testing.T) {
	for what, end := range map[string]func(*clienttest.Server, context.CancelFunc){
		"its context":    func(_ *clienttest.Server, cancel context.CancelFunc) { cancel() },
		"its connection": func(s *clienttest.Server, _ context.CancelFunc) { s.Cut() },
	} {
		s, g := inside(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error)
		go func() {
			_, _, err := g.Start(ctx, client.Command{Argv: []string{"late"}})
			failed <- err
		}()
		for s.Running() == 0 { // go test's own time limit ends this
			<-time.After(time.Millisecond)
		}
		end(s, cancel)
		err := <-failed
		if !errors.Is(err, client.ErrMaybeStarted) || !strings.HasPrefix(err.Error(), "start late: ") || errors.Is(err, context.Canceled) != (ctx.Err() != nil) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

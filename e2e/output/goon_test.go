package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// screen is what a command has written so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{} // closed and replaced
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.grew)
	s.grew = make(chan struct{})
	return s.text.Write(b)
}

// more returns when some lines more have been written.
func (s *screen) more(ctx context.Context, lines int) error {
	s.mu.Lock()
	lines += bytes.Count(s.text.Bytes(), []byte("\n"))
	s.mu.Unlock()
	for {
		s.mu.Lock()
		n, grew := bytes.Count(s.text.Bytes(), []byte("\n")), s.grew
		s.mu.Unlock()
		if n >= lines {
			return nil
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d lines: %w", n, lines, ctx.Err())
		}
	}
}

// TestARunGoesOnOverRestartsPausesAndResumes: as `cube sandbox exec` runs a command. No line
// is missing or comes twice, and its exit status is heard.
func TestARunGoesOnOverRestartsPausesAndResumes(t *testing.T) {
	s.Guard(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base", Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{APIURL: "http://" + s.State.API, SandboxURL: "http://" + s.State.Data, Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := c.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	out := &screen{grew: make(chan struct{})}
	type end struct {
		exit client.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		exit, err := g.Run(ctx, client.Command{
			Argv: []string{"/bin/sh", "-c", "n=0; until [ -e /tmp/enough ]; do n=$((n+1)); echo $n; sleep 0.005; done; exit 7"},
			User: "root", Stdout: out, GoOn: true,
		})
		ended <- end{exit, err}
	}()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"a restart of the server", func() error {
			if err := s.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			return s.Start(ctx)
		}},
		{"a kill of the server", func() error {
			if err := s.Signal(syscall.SIGKILL); err != nil {
				return err
			}
			return s.Start(ctx)
		}},
		{"a pause and a resume", func() error {
			if err := s.API.Pause(ctx, b.ID); err != nil {
				return err
			}
			_, err := s.API.Resume(ctx, b.ID, 0)
			return err
		}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if err := out.more(ctx, 20); err != nil {
			t.Fatalf("after %s: %v", step.what, err)
		}
	}
	if _, err := lab.Shell(ctx, s.API, b, "touch /tmp/enough"); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.err != nil || e.exit.Code != 7 {
		t.Errorf("it ended with %+v, %v", e.exit, e.err)
	}
	for i, line := range strings.Split(strings.TrimSpace(out.text.String()), "\n") {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

// TestAProgramIsNotTakenForAnotherThatHasItsNumberAfterARollback: whoever has kept where the
// output of the first begins is told, and the second goes on.
func TestAProgramIsNotTakenForAnotherThatHasItsNumberAfterARollback(t *testing.T) {
	s.Guard(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base", Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := s.API.Snapshot(ctx, b.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	begin := func(text string) (uint32, client.Position) {
		t.Helper()
		pid, at, err := g.Start(ctx, client.Command{Argv: []string{"/bin/sh", "-c", "echo " + text + "; sleep 1000"}, User: "root"})
		if err != nil {
			t.Fatal(err)
		}
		return pid, at
	}
	first, at := begin("first")
	if err := s.API.Rollback(ctx, b.ID, string(snap.ID)); err != nil {
		t.Fatal(err)
	}
	second, to := begin("second")
	if second != first {
		t.Fatalf("the processes have the numbers %d and %d: this shows nothing", first, second)
	}
	for p, err := range g.Follow(ctx, first, at, client.Following{}) {
		if !errors.Is(err, client.ErrOtherProcess) {
			t.Errorf("who has started the first got %+v, %v", p, err)
			break
		}
	}
	for p, err := range g.Follow(ctx, second, to, client.Following{}) {
		if err != nil || string(p.Data) != "second\n" {
			t.Errorf("who has started the second got %+v, %v", p, err)
		}
		break
	}
}

// TestARunWhoseSandboxIsRolledBackSaysSo: its output is not that of the command any more.
func TestARunWhoseSandboxIsRolledBackSaysSo(t *testing.T) {
	s.Guard(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base", Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	out := &screen{grew: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := g.Run(ctx, client.Command{
			Argv: []string{"/bin/sh", "-c", "while :; do echo $((n=n+1)); sleep 0.005; done"}, User: "root", Stdout: out, GoOn: true,
		})
		ended <- err
	}()
	if err := out.more(ctx, 5); err != nil {
		t.Fatal(err)
	}
	snap, err := s.API.Snapshot(ctx, b.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := out.more(ctx, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.API.Rollback(ctx, b.ID, string(snap.ID)); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	var back *client.WentBackError
	if !errors.As(err, &back) || !errors.Is(err, cube.ErrConflict) || back.To.Offset <= 0 || back.To.Offset >= back.From {
		t.Errorf("got %v", err)
	}
}

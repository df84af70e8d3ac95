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

// followed is what came of a program's output.
type followed struct {
	text    string
	dropped int64
	exit    *client.Exit
	at      client.Position
}

func follow(ctx context.Context, g *client.Guest, at client.Position, o client.Following) (f followed, err error) {
	f.at = at
	for p, err := range g.Follow(ctx, clienttest.OutputPID, at, o) {
		if err != nil {
			return f, err
		}
		f.text += string(p.Data)
		f.dropped += p.Dropped
		f.exit, f.at = p.Exit, p.Next
	}
	return f, nil
}

func TestFollowGivesEachByteOnceOverBrokenStreams(t *testing.T) {
	s, g := inside(t)
	text := strings.Repeat("0123456789", 10)
	s.SetOutput(clienttest.Output{Text: text, Lives: "1:0", Break: 30})
	f, err := follow(t.Context(), g, client.Position{}, client.Following{Window: 41})
	if err != nil || f.text != text || f.dropped != 0 || f.exit == nil || f.exit.Code != 3 || f.at.Offset != 100 || f.at.Lives != "1:0" || f.at.Reader == "" {
		t.Errorf("got %+v, %v", f, err)
	}
	if reads := s.SetOutput(clienttest.Output{}); reads < 4 {
		t.Errorf("%d streams, want one for each 30 bytes", reads)
	}
}

func TestFollowGoesOnWhereAnotherHasStopped(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "1:0"})
	var at client.Position
	for p, err := range g.Follow(t.Context(), clienttest.OutputPID, at, client.Following{}) {
		if err != nil {
			t.Fatal(err)
		}
		if at = p.Next; at.Offset == 4 {
			break
		}
	}
	if f, err := follow(t.Context(), g, at, client.Following{}); err != nil || f.text != "456789" || f.at.Reader != at.Reader {
		t.Errorf("from %+v: got %+v, %v", at, f, err)
	}
}

func TestFollowSaysHowMuchIsNotKept(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "1:0", Start: 6})
	for offset, dropped := range map[int64]int64{0: 6, 6: 0, client.Tail: 0} {
		f, err := follow(t.Context(), g, client.Position{Offset: offset}, client.Following{})
		if err != nil || f.text != "6789" || f.dropped != dropped {
			t.Errorf("from %d: got %+v, %v", offset, f, err)
		}
	}
}

func TestFollowSaysThatTheSandboxWasRolledBackAndToWhere(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "1:0,2:10"})
	_, err := follow(t.Context(), g, client.Position{Offset: 12, Lives: "1:0", Reader: "me"}, client.Following{})
	var back *client.WentBackError
	if !errors.As(err, &back) || !errors.Is(err, cube.ErrConflict) || back.From != 12 || back.To != (client.Position{Offset: 10, Reader: "me", Lives: "1:0,2:10"}) {
		t.Errorf("got %v", err)
	}
}

// TestWhoHasStartedAProgramIsNotGivenAnothersOutput: after a rollback its number comes again.
func TestWhoHasStartedAProgramIsNotGivenAnothersOutput(t *testing.T) {
	s, g := inside(t)
	pid, at, err := g.Start(t.Context(), client.Command{Argv: []string{"break"}})
	if err != nil || pid != clienttest.OutputPID || at.Offset != 0 || at.Lives != "1:0" || at.Reader == "" {
		t.Fatalf("got %d, %+v, %v", pid, at, err)
	}
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "2:0", Other: true})
	f, err := follow(t.Context(), g, at, client.Following{})
	var back *client.WentBackError
	if !errors.Is(err, client.ErrOtherProcess) || !errors.Is(err, cube.ErrNotFound) || errors.As(err, &back) || f.text != "" {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestFollowOfAnOlderAgentSaysSo(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "0123456789"})
	if f, err := follow(t.Context(), g, client.Position{}, client.Following{}); !errors.Is(err, cube.ErrUnsupported) || f.text != "" {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestFollowOfAProcessThatIsNotThereEnds(t *testing.T) {
	_, g := inside(t)
	for p, err := range g.Follow(t.Context(), 7, client.Position{}, client.Following{}) {
		if !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), "pid 7 not found") {
			t.Errorf("got %+v, %v", p, err)
		}
	}
}

func TestFollowWaitsForAPausedSandboxAndNotForOneThatHasEnded(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "1:0"})
	c := s.Client(t)
	var id cube.SandboxID
	for id = range s.States() {
	}
	if err := c.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // longer than its patience
	defer cancel()
	if f, err := follow(ctx, g, client.Position{}, client.Following{Patience: time.Nanosecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is paused: got %+v, %v", f, err)
	}
	if _, err := c.Resume(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := follow(t.Context(), g, client.Position{}, client.Following{}); f.text != "0123456789" || err != nil {
		t.Errorf("after the pause: got %+v, %v", f, err)
	}
	if err := c.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if f, err := follow(t.Context(), g, client.Position{}, client.Following{}); !errors.Is(err, cube.ErrDead) {
		t.Errorf("after a kill: got %+v, %v", f, err)
	}
}

func TestFollowEndsWithItsContextAndItsPatience(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "1:0"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := follow(ctx, g, client.Position{}, client.Following{}); !errors.Is(err, context.Canceled) {
		t.Errorf("without a caller: %v", err)
	}
	far, err := client.New(client.Options{APIURL: "http://127.0.0.1:1", SandboxURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := far.Guest(cube.NewSandboxID(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := follow(t.Context(), nobody, client.Position{}, client.Following{Patience: 30 * time.Millisecond}); !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "no answer for 30ms") {
		t.Errorf("without a server: %v", err)
	}
}

package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/client/clienttest"
)

// TestPatienceBeginsWhenAStreamBreaks: it was no time without an answer, however long nothing
// came.
func TestPatienceBeginsWhenAStreamBreaks(t *testing.T) {
	s, g := inside(t)
	const patience = 300 * time.Millisecond
	s.SetOutput(clienttest.Output{Text: "0123456789", Lives: "1:0", Break: 6, Hold: patience + 100*time.Millisecond})
	f, err := follow(t.Context(), g, client.Position{}, client.Following{Patience: patience})
	if reads := s.SetOutput(clienttest.Output{}); err != nil || f.text != "0123456789" || f.exit == nil || reads != 2 {
		t.Errorf("after %d streams: got %+v, %v", reads, f, err)
	}
}

// fails is an output that cannot be read.
func fails(why connect.Code) clienttest.Output {
	return clienttest.Output{Fail: connect.NewError(why, errors.New("failed on purpose"))}
}

// TestAProgramThatCannotBeReachedIsNotKilled: nor is one that its sandbox has no more.
func TestAProgramThatCannotBeReachedIsNotKilled(t *testing.T) {
	for _, c := range []struct {
		what string
		then clienttest.Output
		want error
		says string
	}{
		{"no answer", fails(connect.CodeUnavailable), cube.ErrAgent, "no answer for 50ms: failed on purpose (guest agent failed); the program may go on as process 1000"},
		{"another has taken its place", fails(connect.CodeAborted), cube.ErrAgent, "may go on as process 1000"},
		{"it is no more", fails(connect.CodeNotFound), cube.ErrNotFound, "failed on purpose"},
		{"its number is another's", clienttest.Output{Text: "0123456789", Lives: "2:0", Other: true}, client.ErrOtherProcess, "before the program began"},
		{"it was rolled back", clienttest.Output{Text: "a", Lives: "1:0,2:1"}, cube.ErrConflict, "from offset 1 to 3 no longer has been"},
	} {
		s, g := inside(t)
		g.Patience(50 * time.Millisecond)
		s.SetOutput(c.then)
		var out strings.Builder
		_, err := g.Run(t.Context(), client.Command{Argv: []string{"break"}, GoOn: true, Stdout: &out})
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) || out.String() != "abc" {
			t.Errorf("%s: got %q, %v", c.what, out.String(), err)
		}
		if signals, reads := s.Signals(), s.SetOutput(clienttest.Output{}); len(signals) > 0 || reads == 0 {
			t.Errorf("%s: after %d reads it was sent %v", c.what, reads, signals)
		}
	}
}

// full is a writer that takes nothing.
type full struct{ after int }

func (f *full) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errors.New("no room")
	}
	return len(b), nil
}

// TestAProgramWhoseCallerTakesNoMoreIsKilled: also when it was gone on with.
func TestAProgramWhoseCallerTakesNoMoreIsKilled(t *testing.T) {
	s, g := inside(t)
	s.SetOutput(clienttest.Output{Text: "abcdef", Lives: "1:0"})
	_, err := g.Run(t.Context(), client.Command{Argv: []string{"break"}, GoOn: true, Stdout: &full{after: 4}})
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v", err)
	}
	if signals := s.Signals(); len(signals) != 1 || signals[0] != "SIGNAL_SIGKILL to 1000 of 1:0" {
		t.Errorf("it was sent %q", signals)
	}
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/network"
	"cubesandbox/network/api"
)

func TestWhatIsWrongWithAnAgentIsSaid(t *testing.T) {
	answers := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	for name, c := range map[string]struct {
		agent http.HandlerFunc
		want  string // in the error; empty: it is well
	}{
		"well":                {answers(`{"generation":3,"processes":5,"memoryBytes":-7}`), ""},
		"of an earlier life":  {answers(`{"generation":2}`), "it says that it is in generation 2 of the sandbox, which is in 3"},
		"of a life to come":   {answers(`{"generation":18446744073709551615}`), "generation 18446744073709551615"},
		"unable":              {answers(`{"generation":3,"initLate":true}`), "the init of the users' processes does not answer"},
		"without init":        {answers(`{"generation":3,"initLate":true,"initGone":"step 8: \u001b` + strings.Repeat("x", 1000) + `"}`), "has not begun: step 8: ?" + strings.Repeat("x", maxReason-9)},
		"no agent":            {answers(`<html>`), "invalid character '<'"},
		"another one":         {http.NotFound, "status 404"},
		"silent":              {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "it has not answered in time"},
		"gone in the middle":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"one that never ends": {answers(strings.Repeat(" ", 1<<20)), "over 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(c.agent)
			defer srv.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			verdict(t, askAgent(ctx, func(ctx context.Context, _ uint16) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
			}, 3), c.want)
		})
	}
	for _, failed := range []error{network.ErrTimeout, network.ErrUnreachable, cube.ErrRefused} {
		err := askAgent(t.Context(), func(context.Context, uint16) (net.Conn, error) { return nil, failed }, 3)
		verdict(t, err, "it takes no connection")
	}
	// Where we are at fault nothing is known of the agent.
	for failed, want := range map[error]error{cube.ErrUnavailable: cube.ErrUnavailable, network.ErrLimit: cube.ErrConflict} {
		err := askAgent(t.Context(), func(context.Context, uint16) (net.Conn, error) { return nil, failed }, 3)
		if !errors.Is(err, want) || errors.Is(err, cube.ErrAgent) {
			t.Errorf("%v: got %v, want %v", failed, err, want)
		}
	}
}

// TestWhoIsNotWaitedForIsNotJudged: whoever asks goes away while the agent is at it, or
// before it was reached.
func TestWhoIsNotWaitedForIsNotJudged(t *testing.T) {
	for _, reached := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		err := askAgent(ctx, func(context.Context, uint16) (net.Conn, error) {
			cancel()
			if !reached {
				return nil, network.ErrTimeout
			}
			ours, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			return ours, nil
		}, 3)
		if !errors.Is(err, context.Canceled) || errors.Is(err, cube.ErrAgent) {
			t.Errorf("reached is %v: got %v, want %v", reached, err, context.Canceled)
		}
	}
}

// dialing has what answers each connection to a life's agent, or says why there is none.
func dialing(t *testing.T, e *Engine, answer func() (*os.File, error)) {
	t.Helper()
	l, err := fdrpc.Listen(e.keepers.current.info.Network, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	srv := fdrpc.NewServer(api.Protocol, api.Version)
	srv.Handle(api.MethodDial, func(context.Context, *fdrpc.Request) (any, []*os.File, error) {
		f, err := answer()
		if err != nil {
			return nil, nil, err
		}
		return nil, []*os.File{f}, nil
	})
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(l) })
	t.Cleanup(func() { l.Close(); srv.Close(); serving.Wait() })
}

// well is a connection to an agent that says that it is well before it is asked.
func well(t *testing.T) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	agent := os.NewFile(uintptr(fds[1]), "agent")
	t.Cleanup(func() { agent.Close() })
	_, err = io.WriteString(agent, "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"generation\":1}")
	return os.NewFile(uintptr(fds[0]), "agent"), err
}

// TestNobodyIsJudgedWhomAVerbHasStopped: during a question that goes wrong a verb has been
// at work, or is; a sandbox that is saved is said to run all the time.
func TestNobodyIsJudgedWhomAVerbHasStopped(t *testing.T) {
	e, f := fakeEngine(t, 0)
	s := newSandbox(e.keepers.current, current(lifeA, 1, keeperapi.StateRunning))
	e.enter(s)
	during := make(chan func() (*os.File, error), 1)
	dialing(t, e, func() (*os.File, error) { return (<-during)() })
	late := fdrpc.Errorf(api.CodeTimeout, "the guest did not answer")
	saves := make(chan bool, 1)
	f.on(keeperapi.MethodSave, func(context.Context, *fdrpc.Request) error { saves <- true; return errors.New("it ends here") })
	for _, c := range []struct {
		name   string
		during func() (*os.File, error)
		want   error
	}{
		{"none", func() (*os.File, error) { return nil, late }, cube.ErrAgent},
		{"a save", func() (*os.File, error) {
			if _, err := e.Save(t.Context(), boxID, cube.NewSnapshotID()); len(saves) != 1 {
				t.Errorf("the sentry was not told to save: %v", err)
			}
			return nil, late
		}, cube.ErrConflict},
		{"none again", func() (*os.File, error) { return nil, late }, cube.ErrAgent},
		{"one at work", func() (*os.File, error) { _, err := e.lock(boxID); return nil, errors.Join(err, late) }, cube.ErrConflict},
		{"one that goes on", func() (*os.File, error) { return nil, late }, cube.ErrConflict},
		{"one that ends", func() (*os.File, error) { s.unlock(); return nil, late }, cube.ErrConflict},
		{"one at work, and the agent is well", func() (*os.File, error) { e.lock(boxID); return well(t) }, nil},
	} {
		during <- c.during
		if err := e.Ask(t.Context(), boxID); !errors.Is(err, c.want) || errors.Is(err, cube.ErrAgent) != (c.want == cube.ErrAgent) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if got := s.view().State; got != cube.StateRunning {
			t.Errorf("%s: it is %s", c.name, got)
		}
	}
	s.unlock()
}

func verdict(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (!errors.Is(err, cube.ErrAgent) || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}

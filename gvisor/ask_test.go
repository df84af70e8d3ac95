package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/network"
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
		"without init":        {answers(`{"generation":3,"initLate":true,"initGone":"step 8:\n` + strings.Repeat("x", 1000) + `"}`), `has not begun: "step 8:\n` + strings.Repeat("x", 192) + `"`},
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
	for _, failed := range []error{network.ErrTimeout, network.ErrUnreachable, network.ErrLimit, cube.ErrRefused} {
		err := askAgent(t.Context(), func(context.Context, uint16) (net.Conn, error) { return nil, failed }, 3)
		verdict(t, err, "it takes no connection")
	}
	// Where we are at fault nothing is known of the agent.
	err := askAgent(t.Context(), func(context.Context, uint16) (net.Conn, error) { return nil, cube.ErrUnavailable }, 3)
	if !errors.Is(err, cube.ErrUnavailable) || errors.Is(err, cube.ErrAgent) {
		t.Errorf("got %v, want %v", err, cube.ErrUnavailable)
	}
}

func verdict(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (!errors.Is(err, cube.ErrAgent) || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}

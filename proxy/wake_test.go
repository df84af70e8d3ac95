package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	cube "cubesandbox"
)

func paused(r *cube.Route) { r.Phase, r.AutoResume = cube.PhasePaused, true }

func TestTrafficToAPausedAutoResumeSandboxWaitsAndIsServed(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(paused)
	w.serve(id, 2, 80, echo("awake"))
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			resp, err := client1.Do(w.request(http.MethodGet, name(id, 80), "/", nil))
			if err != nil || resp.StatusCode != 200 {
				t.Errorf("got %v (%v)", resp, err)
				return
			}
			resp.Body.Close()
		})
	}
	wg.Wait()
	if w.woken() == 0 {
		t.Error("nobody woke it")
	}
}

func TestASandboxThatCannotBeWokenIsSaidInEitherDialect(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(paused)
	for what, c := range map[string]struct {
		err       error
		cube, e2b int
		retry     string
	}{
		"no room":    {&cube.CapacityError{What: "memory"}, 429, 429, "1"},
		"image lost": {errors.New("image lost in /var/lib"), 503, 502, "5"},
		"killed":     {cube.ErrNotFound, 410, 502, ""},
	} {
		w.wake = c.err
		status, body, h := w.get(name(id, 80), "/")
		if status != c.cube || h.Get("Retry-After") != c.retry || strings.Contains(body, "/var/lib") {
			t.Errorf("%s: got %d %q, Retry-After %q, want %d, %q", what, status, body, h.Get("Retry-After"), c.cube, c.retry)
		}
		if status, body, _ := w.get(name(id, 80), "/", "User-Agent", "e2b-js-sdk/2.51.0"); status != c.e2b {
			t.Errorf("%s, e2b: got %d %q, want %d", what, status, body, c.e2b)
		}
	}
}

// TestAStrangerWakesNobody: neither by talking to the agent without a token or with
// a signature that is none, nor by a port whose traffic token he does not have.
func TestAStrangerWakesNobody(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(paused, func(r *cube.Route) { r.TrafficToken = "secret" })
	token := w.routes[id].AccessToken
	q := url.Values{"path": {"x"}}
	q.Set("signature", signed(q, "read", token))
	for what, c := range map[string]struct {
		port    int
		path    string
		headers []string
		want    int
	}{
		"no token":            {envdPort, "/process.Process/List", nil, 401},
		"wrong token":         {envdPort, "/process.Process/List", []string{accessHeader, token[1:]}, 401},
		"some signature":      {envdPort, "/files?path=x&signature=v1_x", nil, 401},
		"signed, other route": {envdPort, "/envs?" + q.Encode(), nil, 401},
		"no traffic token":    {80, "/", nil, 403},
		"internal":            {envdPort, "/init", []string{accessHeader, token}, 404},
	} {
		if status, body, _ := w.get(name(id, c.port), c.path, c.headers...); status != c.want || w.woken() != 0 {
			t.Errorf("%s: got %d %q after %d wakes, want %d after none", what, status, body, w.woken(), c.want)
		}
	}
	w.serve(id, 2, envdPort, echo("envd"))
	w.serve(id, 2, 80, echo("app"))
	for what, c := range map[string]struct {
		port    int
		path    string
		headers []string
	}{
		"token":         {envdPort, "/process.Process/List", []string{accessHeader, token}},
		"key":           {envdPort, "/health", []string{keyHeader, key}},
		"signed":        {envdPort, "/files?" + q.Encode(), nil},
		"traffic token": {80, "/", []string{trafficHeaders[0], "secret"}},
	} {
		w.become(id, cube.PhasePaused, 1)
		before := w.woken()
		if status, body, _ := w.get(name(id, c.port), c.path, c.headers...); status != 200 || w.woken() == before {
			t.Errorf("%s: got %d %q after %d wakes", what, status, body, w.woken()-before)
		}
	}
}

// TestARequestIsTrafficBeforeItLooksWhereTheSandboxIs: or an idle one could be
// paused between the two. A request that may not come in is none.
func TestARequestIsTrafficBeforeItLooksWhereTheSandboxIs(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(func(r *cube.Route) { r.TrafficToken = "secret" })
	w.serve(id, 1, 80, echo("ok"))
	w.dialed = func(cube.SandboxID, cube.Generation) {
		if w.touched() != 1 {
			t.Errorf("%d requests count while one dials", w.touched())
		}
	}
	w.get(name(id, 80), "/", trafficHeaders[0], "secret")
	before := w.touches
	if w.get(name(id, 80), "/"); w.touches != before || before == 0 {
		t.Errorf("a refused request counts: %d, then %d", before, w.touches)
	}
}

// TestARequestFindsTheLifeThatBeganWhileItWasOnItsWay: with its body, once, and never
// the life before.
func TestARequestFindsTheLifeThatBeganWhileItWasOnItsWay(t *testing.T) {
	for what, next := range map[string]func(w *world, id cube.SandboxID){
		"rolled back": func(w *world, id cube.SandboxID) { w.become(id, cube.PhaseRunning, 2) },
		"paused":      func(w *world, id cube.SandboxID) { w.become(id, cube.PhasePaused, 0) },
	} {
		w := newWorld(t)
		id := w.sandbox(func(r *cube.Route) { r.AutoResume = true })
		w.serve(id, 1, 80, echo("first life"))
		w.serve(id, 2, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(rw, "second life got %s", b)
		}))
		w.dialed = func(id cube.SandboxID, gen cube.Generation) {
			if gen == 1 {
				next(w, id)
			}
		}
		status, body, _ := w.do(w.request(http.MethodPost, name(id, 80), "/", strings.NewReader("all of it")))
		if status != 200 || body != "second life got all of it" {
			t.Errorf("%s: got %d %q", what, status, body)
		}
	}
}

func TestLivesThatEndFasterThanTheyAreFoundAreGivenUp(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.dialed = func(id cube.SandboxID, gen cube.Generation) { w.become(id, cube.PhaseRunning, gen+1) }
	if status, body, h := w.get(name(id, 80), "/"); status != 503 || h.Get("Retry-After") != "1" {
		t.Errorf("got %d %q", status, body)
	}
	if w.dials != mostLives {
		t.Errorf("%d lives were tried, want %d", w.dials, mostLives)
	}
}

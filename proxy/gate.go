package proxy

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	cube "cubesandbox"
)

// Headers with which clients show that they may come in.
const (
	keyHeader    = "X-API-Key"
	accessHeader = "X-Access-Token"
)

// trafficHeaders carry the traffic token of a sandbox that is not public.
var trafficHeaders = []string{"e2b-traffic-access-token", "cube-traffic-access-token"}

// internal are envd's routes for the server only.
var internal = []string{"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"}

// mostLives is how many lives of its sandbox a request tries to get to.
const mostLives = 3

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer p.working.begin()()
	began := time.Now()
	t, no := p.targetOf(r)
	rec := &recorder{ResponseWriter: w, proxy: p}
	defer p.metrics.begin(t)()
	defer func() {
		took := time.Since(began)
		p.metrics.end(t, rec, took)
		p.log.Debug("request", "sandbox", t.id, "port", t.port, "method", r.Method, "status", rec.status, "reset", rec.reset, "took", took)
	}()
	if no != nil {
		say(rec, r, no.answer())
		return
	}
	p.serve(rec, r, t)
}

// serve takes a request that names a sandbox to its current life.
func (p *Proxy) serve(w *recorder, r *http.Request, t target) {
	// Before anything is done for the request: a stranger must neither wake a sandbox
	// nor keep it awake.
	known, no := p.check(r, t)
	if p.pages(w, r, t, known) {
		return
	}
	if no != nil {
		say(w, r, *no)
		return
	}
	// Then it counts as traffic, and only then is looked at where the sandbox is: one
	// that is idle may be about to be paused.
	if !p.stranger(r, t, known) {
		defer p.sandboxes.Touch(t.id)()
	}
	var before cube.Generation
	for range mostLives {
		route, no := p.admit(r, t)
		if no != nil {
			say(w, r, *no)
			return
		}
		if route.Generation == before || p.forward(w, r, t, route) {
			break
		}
		before = route.Generation
	}
	if w.status == 0 {
		say(w, r, unreachable(r, t)) // its lives end faster than it is found
	}
}

// check decides whether a request may go to its target at all.
func (p *Proxy) check(r *http.Request, t target) (cube.Route, *answer) {
	route, no := p.route(r, t)
	switch {
	case no != nil:
	case t.port == envdPort && isInternal(r, t):
		no = &answer{SandboxID: t.id, Message: "not found", Code: http.StatusNotFound}
	case !p.may(r, t, route):
		no = &answer{SandboxID: t.id, Message: "This sandbox is private: send its traffic token in the header " + trafficHeaders[0], Code: http.StatusForbidden}
	}
	return route, no
}

func (p *Proxy) route(r *http.Request, t target) (cube.Route, *answer) {
	route, err := p.sandboxes.Route(r.Context(), t.id)
	switch {
	case err == nil:
		return route, nil
	case errors.Is(err, cube.ErrNotFound):
		a := absent(r, t.id, "")
		return route, &a
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // nobody waits
	default:
		p.log.Warn("a sandbox could not be looked up", "sandbox", t.id, "error", err)
		return route, &answer{SandboxID: t.id, Message: "The server cannot look the sandbox up; try again", Code: http.StatusServiceUnavailable, retryAfter: 1}
	}
}

// admit returns the life that a request goes to, which it may have to wait for.
func (p *Proxy) admit(r *http.Request, t target) (cube.Route, *answer) {
	route, no := p.route(r, t)
	if no != nil || route.Phase == cube.PhaseRunning {
		return route, no
	}
	if route.AutoResume && (route.Phase == cube.PhasePaused || route.Phase == cube.PhasePausing || route.Phase == cube.PhaseResuming) {
		return p.wake(r, t, route)
	}
	a := absent(r, t.id, route.Phase)
	return route, &a
}

// wake brings a sandbox back for a request, which waits.
func (p *Proxy) wake(r *http.Request, t target, was cube.Route) (cube.Route, *answer) {
	// Only who could have talked to the agent may wake it by talking to it.
	if p.stranger(r, t, was) {
		return was, &answer{SandboxID: t.id, Message: "unauthorized access, please provide a valid access token", Code: http.StatusUnauthorized}
	}
	route, err := p.sandboxes.Wake(r.Context(), t.id)
	switch {
	case err == nil && route.Phase == cube.PhaseRunning:
		return route, nil
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // nobody waits
	case errors.Is(err, cube.ErrNoCapacity):
		return route, &answer{SandboxID: t.id, Message: "The sandbox cannot be resumed now: " + err.Error(), Code: http.StatusTooManyRequests, retryAfter: 1}
	case errors.Is(err, cube.ErrNotFound):
		a := absent(r, t.id, cube.PhaseEnded)
		return route, &a
	default:
		p.log.Warn("a sandbox could not be woken", "sandbox", t.id, "phase", route.Phase, "error", err)
		a := answer{SandboxID: t.id, Message: "The sandbox could not be resumed; connect to it to see why", Code: http.StatusServiceUnavailable, retryAfter: 5}
		if isE2B(r) {
			a.Code = http.StatusBadGateway
		}
		return route, &a
	}
}

// may reports whether a request has the traffic token that its target asks for.
func (p *Proxy) may(r *http.Request, t target, route cube.Route) bool {
	if t.port == envdPort || route.TrafficToken == "" {
		return true
	}
	return slices.ContainsFunc(trafficHeaders, func(h string) bool { return same(r.Header.Get(h), route.TrafficToken) }) || p.hasKey(r)
}

// knows reports whether a request has the access token, a link that was signed with it
// and is still good, or the key to everything.
func (p *Proxy) knows(r *http.Request, t target, route cube.Route) bool {
	if same(r.Header.Get(accessHeader), route.AccessToken) || p.hasKey(r) {
		return true
	}
	l, ok := linkOf(r)
	return ok && isLink(r, pathOf(r, t)) && l.fits(route.AccessToken) && !l.expired(time.Now())
}

// stranger reports whether a request talks to the agent without what it asks for. Of
// what it may have (whether the agent is well, and why it is refused) nothing counts.
func (p *Proxy) stranger(r *http.Request, t target, route cube.Route) bool {
	return t.port == envdPort && route.AccessToken != "" && !p.knows(r, t, route)
}

func (p *Proxy) hasKey(r *http.Request) bool {
	return p.key != "" && (same(r.Header.Get(keyHeader), p.key) || p.bearsKey(r))
}

func (p *Proxy) bearsKey(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && p.key != "" && same(token, p.key)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isInternal reports whether the path is one of envd's own, however it is spelt.
func isInternal(r *http.Request, t target) bool {
	return slices.Contains(internal, strings.ToLower(path.Clean("/"+pathOf(r, t))))
}

// pathOf is the path that the guest sees, unescaped.
func pathOf(r *http.Request, t target) string { return strings.TrimPrefix(r.URL.Path, t.prefix) }

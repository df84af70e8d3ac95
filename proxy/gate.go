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

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	t, no := p.targetOf(r)
	defer p.metrics.begin(t)()
	rec := &recorder{ResponseWriter: w}
	defer func() {
		p.metrics.end(t, rec.status, time.Since(began))
		p.log.Debug("request", "sandbox", t.id, "port", t.port, "method", r.Method, "status", rec.status, "took", time.Since(began))
	}()
	if no != nil {
		say(rec, r, answer{Message: no.message, Code: no.status})
		return
	}
	route, no2 := p.admit(r, t)
	if no2 != nil {
		say(rec, r, *no2)
		return
	}
	done := p.sandboxes.Touch(t.id)
	defer done()
	p.forward(rec, r, t, route)
}

// admit decides whether a request may go to its target, and to which life.
func (p *Proxy) admit(r *http.Request, t target) (cube.Route, *answer) {
	route, err := p.sandboxes.Route(r.Context(), t.id)
	if errors.Is(err, cube.ErrNotFound) {
		a := absent(r, t.id, "")
		return route, &a
	}
	if err != nil {
		return route, &answer{SandboxID: t.id, Message: "The server cannot look the sandbox up; try again", Code: http.StatusServiceUnavailable, retryAfter: 1}
	}
	if t.port == envdPort && isInternal(r, t) {
		return route, &answer{SandboxID: t.id, Message: "not found", Code: http.StatusNotFound}
	}
	// Before anything is done for the request: a stranger must not wake a sandbox.
	if !p.may(r, t, route) {
		return route, &answer{SandboxID: t.id, Message: "This sandbox is private: send its traffic token in the header " + trafficHeaders[0], Code: http.StatusForbidden}
	}
	if route.Phase == cube.PhaseRunning {
		return route, nil
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
	if t.port == envdPort && was.AccessToken != "" && !p.knows(r, was) && r.URL.Query().Get("signature") == "" {
		return was, &answer{SandboxID: t.id, Message: "unauthorized access, please provide a valid access token", Code: http.StatusUnauthorized}
	}
	route, err := p.sandboxes.Wake(r.Context(), t.id)
	switch {
	case err == nil && route.Phase == cube.PhaseRunning:
		return route, nil
	case errors.Is(err, cube.ErrNoCapacity):
		return route, &answer{SandboxID: t.id, Message: "The sandbox cannot be resumed now: " + err.Error(), Code: http.StatusTooManyRequests, retryAfter: 1}
	case errors.Is(err, cube.ErrNotFound):
		a := absent(r, t.id, cube.PhaseEnded)
		return route, &a
	default:
		p.log.Warn("a sandbox could not be woken", "sandbox", t.id, "error", err)
		return route, &answer{SandboxID: t.id, Message: "The sandbox could not be resumed; connect to it to see why", Code: http.StatusServiceUnavailable, retryAfter: 5}
	}
}

// may reports whether a request has the traffic token that its target asks for.
func (p *Proxy) may(r *http.Request, t target, route cube.Route) bool {
	if t.port == envdPort || route.TrafficToken == "" {
		return true
	}
	return slices.ContainsFunc(trafficHeaders, func(h string) bool { return same(r.Header.Get(h), route.TrafficToken) }) || p.hasKey(r)
}

// knows reports whether a request has the access token, or the key to everything.
func (p *Proxy) knows(r *http.Request, route cube.Route) bool {
	return same(r.Header.Get(accessHeader), route.AccessToken) || p.hasKey(r)
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
	return slices.Contains(internal, strings.ToLower(path.Clean("/"+strings.TrimPrefix(r.URL.Path, t.prefix))))
}

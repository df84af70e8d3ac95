package proxy

import (
	"net/http"
	"strings"
	"testing"

	cube "cubesandbox"
)

// TestPagesMayTalkToAnAgentThatAsksForItsToken: a browser asks beforehand, without the
// token, and that neither wakes the sandbox nor counts.
func TestPagesMayTalkToAnAgentThatAsksForItsToken(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox(paused)
	w.serve(id, 2, envdPort, echo("envd"))
	ask := func(id cube.SandboxID, port int) (int, http.Header) {
		status, _, h := w.do(w.request(http.MethodOptions, name(id, port), "/process.Process/Start", nil, "Origin", "https://app.example",
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-access-token"))
		return status, h
	}
	status, h := ask(id, envdPort)
	if status != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") || w.woken() != 0 || w.touches != 0 {
		t.Errorf("beforehand: got %d %v, %d wakes, traffic %d times", status, h, w.woken(), w.touches)
	}
	status, body, h := w.get(name(id, envdPort), "/health", "Origin", "https://app.example", accessHeader, w.routes[id].AccessToken)
	if status != http.StatusOK || !strings.HasPrefix(body, "envd") || len(h.Values("Access-Control-Allow-Origin")) != 1 {
		t.Errorf("then: got %d %q %v", status, body, h)
	}
	status, _, h = w.get(name(id, envdPort), "/init", "Origin", "https://app.example")
	if status != http.StatusNotFound || len(h.Values("Access-Control-Allow-Origin")) != 1 {
		t.Errorf("a refusal can be read: got %d %v", status, h)
	}
	if _, _, h := w.get(name(id, envdPort), "/health"); h.Get("Access-Control-Expose-Headers") != "" {
		t.Errorf("no page: got %v", h)
	}

	open := w.sandbox(func(r *cube.Route) { r.AccessToken = "" })
	w.serve(open, 1, envdPort, echo("open"))
	w.serve(id, 2, 80, echo("app"))
	for what, c := range map[string]struct {
		id   cube.SandboxID
		port int
	}{"an agent that asks for no token": {open, envdPort}, "another port": {id, 80}} {
		if status, h := ask(c.id, c.port); status != http.StatusOK || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got %d %v, want what it says itself", what, status, h)
		}
	}
}

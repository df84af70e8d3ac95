package proxy

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	cube "cubesandbox"
)

// answer is what a client hears from the proxy itself.
type answer struct {
	SandboxID cube.SandboxID `json:"sandboxId,omitempty"`
	Message   string         `json:"message"`
	Port      uint16         `json:"port,omitempty"`
	Code      int            `json:"code"`
	// Error is where CubeSandbox's clients look.
	Error string `json:"error,omitempty"`

	retryAfter int // seconds; 0: not said
}

// isE2B reports whether a client is one of E2B's: they all send its headers.
func isE2B(r *http.Request) bool {
	return r.Header.Get(idHeader) != "" || strings.HasPrefix(strings.ToLower(r.UserAgent()), "e2b")
}

// absent is the answer for a sandbox that cannot take requests, in the form of
// either dialect. E2B says 502 to all of it: its clients ask no more.
func absent(r *http.Request, id cube.SandboxID, phase cube.Phase) answer {
	e2b := answer{SandboxID: id, Message: "The sandbox was not found", Code: http.StatusBadGateway}
	a := answer{SandboxID: id}
	switch phase {
	case cube.PhaseEnded, cube.PhaseKilling:
		a.Code, a.Message = http.StatusGone, "The sandbox has ended"
	case cube.PhasePaused:
		a.Code, a.Message, a.retryAfter = http.StatusServiceUnavailable, "The sandbox is paused; connect to it", 5
	case cube.PhasePausing, cube.PhaseResuming, cube.PhaseRollingBack, cube.PhaseRecovering:
		a.Code, a.Message, a.retryAfter = http.StatusServiceUnavailable, "The sandbox is "+string(phase)+"; try again", 2
		if phase != cube.PhasePausing { // which E2B shows as paused
			e2b = a
			e2b.Code = http.StatusConflict
		}
	default:
		a.Code, a.Message = http.StatusNotFound, "The sandbox was not found"
	}
	if isE2B(r) {
		return e2b
	}
	return a
}

func closedPort(t target) answer {
	return answer{SandboxID: t.id, Message: "The sandbox is running but port is not open", Port: t.port, Code: http.StatusBadGateway}
}

// unreachable is for a request that could not be sent, for no fault of the sandbox.
func unreachable(r *http.Request, t target) answer {
	a := answer{SandboxID: t.id, Message: "The sandbox cannot be reached now; try again", Code: http.StatusServiceUnavailable, retryAfter: 1}
	if isE2B(r) {
		a.Code = http.StatusBadGateway
	}
	return a
}

// lost is for a request that reached the sandbox, or may have, and got no answer.
func lost(t target) answer {
	return answer{SandboxID: t.id, Port: t.port, Code: http.StatusBadGateway,
		Message: "The connection to the sandbox ended before it answered; the request may have been at work"}
}

// say writes an answer: JSON, or a page for a person who navigates.
func say(w http.ResponseWriter, r *http.Request, a answer) {
	h := w.Header()
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if navigates(r) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		w.WriteHeader(a.Code)
		page.Execute(w, a)
		return
	}
	if !isE2B(r) {
		a.Error = a.Message
	}
	// A page's own script may read why it failed.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "application/json")
	w.WriteHeader(a.Code)
	json.NewEncoder(w).Encode(a)
}

// navigates reports whether a person with a browser looks at the answer. A page's
// own requests say something else in Sec-Fetch-Mode.
func navigates(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return strings.HasPrefix(r.UserAgent(), "Mozilla/") && strings.Contains(r.Header.Get("Accept"), "text/html") &&
		(mode == "" || mode == "navigate")
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Message}}</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto 0;padding:0 1.5rem;color:#1d1d1f;background:#fafafa}
h1{font-size:1.4rem;margin:0 0 1rem}dl{display:grid;grid-template-columns:auto 1fr;gap:.2rem 1rem;color:#555}
dd{margin:0;font-family:ui-monospace,monospace;overflow-wrap:anywhere}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161618}dl{color:#aaa}}
</style>
<h1>{{.Message}}</h1>
<dl>{{if .SandboxID}}<dt>Sandbox</dt><dd>{{.SandboxID}}</dd>{{end}}{{if .Port}}<dt>Port</dt><dd>{{.Port}}</dd>{{end}}<dt>Status</dt><dd>{{.Code}}</dd></dl>
`))

package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	cube "cubesandbox"
	"cubesandbox/http/openapi"
)

// statusError is an error that knows its status.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string { return e.message }

func invalid(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// conditions are the statuses of the root package's errors, and words for those that
// programs react to. The first that fits counts.
var conditions = []struct {
	err    error
	status int
	code   string
	retry  bool
}{
	{cube.ErrKeyReused, http.StatusUnprocessableEntity, "idempotency_key_reused", false},
	{cube.ErrCorrupt, http.StatusInternalServerError, "image_corrupt", false},
	{cube.ErrIncompatible, http.StatusConflict, "image_incompatible", false},
	{cube.ErrNoCapacity, http.StatusTooManyRequests, "sandbox_capacity_unavailable", true},
	{cube.ErrInvalid, http.StatusBadRequest, "", false},
	{cube.ErrNotFound, http.StatusNotFound, "", false},
	{cube.ErrConflict, http.StatusConflict, "", false},
	{cube.ErrExists, http.StatusConflict, "", false},
	{cube.ErrDead, http.StatusNotFound, "", false},
	{cube.ErrNoSpace, http.StatusInsufficientStorage, "sandbox_capacity_unavailable", false},
	{cube.ErrUnavailable, http.StatusServiceUnavailable, "", true},
	{cube.ErrUnsupported, http.StatusNotImplemented, "", false},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "sandbox_placement_timeout", false},
}

// ours are the words that E2B does not have. Clients of every dialect get them; E2B's
// are for E2B's.
var ours = []string{"idempotency_key_reused", "image_corrupt", "image_incompatible"}

// writeError answers with what went wrong.
func writeError(c *call, err error) {
	if late := c.ctx().Err(); errors.Is(late, context.DeadlineExceeded) && !errors.Is(err, late) {
		err = fmt.Errorf("%w: %w", err, late) // what it was made of by whoever saw it end
	}
	var s *statusError
	if errors.As(err, &s) {
		writeStatus(c, s.status, s.message, "")
		return
	}
	for _, k := range conditions {
		if !errors.Is(err, k.err) {
			continue
		}
		status := k.status
		if status == http.StatusGatewayTimeout && !c.e2b() {
			status = http.StatusRequestTimeout
		}
		if k.retry {
			c.w.Header().Set("Retry-After", "1")
		}
		writeStatus(c, status, message(err), k.code)
		return
	}
	if c.ctx().Err() != nil {
		writeStatus(c, 499, "the client went away", "") // nobody reads it
		return
	}
	writeStatus(c, http.StatusInternalServerError, message(err), "internal_server_error")
}

// noSpaceAdvice is what can be done about a full disk.
const noSpaceAdvice = "; free space in the state directory: `cube snapshot rm`, `cube template rm`; `cube gc` frees what nothing needs"

// message is what a client hears of an error: without the sentinel's words where
// the rest says it.
func message(err error) string {
	m := err.Error()
	if errors.Is(err, cube.ErrNoSpace) {
		return m + noSpaceAdvice
	}
	for _, tail := range []string{cube.ErrInvalid.Error(), cube.ErrConflict.Error()} {
		m = strings.TrimSuffix(m, ": "+tail)
	}
	if rest, ok := strings.CutSuffix(m, ": "+cube.ErrNotFound.Error()); ok {
		return rest + " not found"
	}
	return m
}

func writeStatus(c *call, status int, text, code string) {
	e := openapi.Error{Code: status, Message: text}
	if code != "" && (c.e2b() || slices.Contains(ours, code)) {
		e.ErrorCode = &code
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	json.NewEncoder(c.w).Encode(e)
}

// later are the routes that clients know and that come with a later version.
var later = []string{
	"POST /sandboxes/{sandboxID}/fork", "PUT /sandboxes/{sandboxID}/network",
	"GET /sandboxes/{sandboxID}/metrics", "GET /sandboxes/metrics",
	"GET /sandboxes/{sandboxID}/logs", "GET /v2/sandboxes/{sandboxID}/logs",
	"POST /templates", "POST /v2/templates", "POST /v3/templates", "POST /templates/{templateID}", "PATCH /templates/{templateID}",
	"PATCH /v2/templates/{templateID}", "PUT /templates/{templateID}/alias",
	"POST /v2/templates/{templateID}/builds/{buildID}",
	// Builds, their status and logs, files, tags; CubeSandbox's adopt-baseline.
	"GET /templates/{templateID}/{rest...}", "POST /templates/{templateID}/{rest...}",
	"POST /templates/tags", "DELETE /templates/tags", "GET /templates/compat",
	"GET /volumes", "POST /volumes", "GET /volumes/{volumeID}", "DELETE /volumes/{volumeID}",
	"GET /secrets", "POST /secrets", "GET /secrets/{secretID}", "POST /secrets/{secretID}", "DELETE /secrets/{secretID}",
	"GET /teams",
}

func notYet(c *call) (answer, error) {
	return answer{}, &statusError{http.StatusNotImplemented, fmt.Sprintf("%s %s is not implemented yet", c.r.Method, c.r.URL.Path)}
}

func notYetField(what string) error {
	return &statusError{http.StatusNotImplemented, what + " is not implemented yet; leave it out"}
}

// methods are those that a path may know.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// methodsOf returns those that the path of a request takes.
func (a *API) methodsOf(r *http.Request) []string {
	if !clean(r.URL) {
		return nil // the mux would say what it takes at another path
	}
	var known []string
	for _, m := range methods {
		r := r.Clone(r.Context())
		r.Method = m
		if _, pattern := a.mux.Handler(r); pattern != "/" {
			known = append(known, m)
		}
	}
	return known
}

// unknown answers what no route takes: another path, or another method.
func (a *API) unknown(c *call) (answer, error) {
	known := a.methodsOf(c.r)
	if len(known) == 0 {
		return answer{}, &statusError{http.StatusNotFound, fmt.Sprintf("There is no route %s %.200s; GET /openapi.yaml has those that there are", c.r.Method, c.r.URL.Path)}
	}
	allow := strings.Join(known, ", ")
	c.w.Header().Set("Allow", allow)
	return answer{}, &statusError{http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s, not %s", c.r.URL.Path, allow, c.r.Method)}
}

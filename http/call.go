package http

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 1 << 20

// call is one request.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	id      string // x-request-id
	dialect string
	// sandbox and made are the ids that it is about, for logs.
	sandbox cube.SandboxID
	made    []string
}

func (c *call) ctx() context.Context { return c.r.Context() }

// e2b reports whether the client speaks E2B's dialect.
func (c *call) e2b() bool { return c.dialect == dialectE2B }

// v2 reports whether the route is of E2B's second version.
func (c *call) v2() bool { return strings.HasPrefix(c.r.URL.Path, "/v2/") }

// answer is what a call gives.
type answer struct {
	status int
	body   any // nil: none
	header map[string]string
	// written: the handler has written it itself.
	written bool
}

// box reads the sandbox id of the path. What cannot be one is as unknown as any.
func (c *call) box() (cube.SandboxID, error) {
	text := c.r.PathValue("sandboxID")
	id, err := parseSandbox(text)
	if err != nil {
		// It is not repeated: a client looks for words in this.
		return "", &statusError{http.StatusNotFound, "sandbox not found: an id has 32 lower-case hex digits"}
	}
	c.sandbox = id
	return id, nil
}

// parseSandbox also takes E2B's old form, ID-CLIENT.
func parseSandbox(text string) (cube.SandboxID, error) {
	id, _, _ := strings.Cut(text, "-")
	return cube.ParseSandboxID(id)
}

// handle wraps a route in everything that all have.
func (a *API) handle(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &call{r: r, id: requestID(r), dialect: a.dialectOf(r)}
		ctx, times := timing.With(r.Context())
		ctx, cancel := context.WithTimeout(ctx, rt.limit)
		defer cancel()
		c.r = r.WithContext(ctx)
		if r.Body != nil {
			c.r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		rec := &recorder{ResponseWriter: w, header: func(h http.Header) { h.Set("Server-Timing", times.Header(time.Since(began))) }}
		c.w = rec
		defer a.metrics.begin()()
		err := a.serve(c, rt)
		took := time.Since(began)
		a.metrics.end(rt.op, r.Method, rec.status, took)
		a.tell(c, rt, rec.status, took, err)
	})
}

// serve does a call and writes its answer.
func (a *API) serve(c *call, rt route) (err error) {
	defer func() {
		p := recover()
		if p == http.ErrAbortHandler {
			panic(p) // net/http cuts the connection
		}
		if p != nil {
			err = fmt.Errorf("panic: %v", p)
			a.log.Error("panic", "request", c.id, "sandbox", c.sandbox, "error", err, "stack", string(debug.Stack()))
			writeError(c, fmt.Errorf("this is a fault of ours; the log has it under request %s", c.id))
		}
	}()
	h := c.w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if no := a.admit(c, rt); no != nil {
		writeStatus(c, no.status, no.message, "")
		return fmt.Errorf("%s", no.message)
	}
	if c.r.Method == http.MethodOptions {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	ans, err := rt.do(c)
	if err != nil {
		writeError(c, err)
		return err
	}
	write(c, ans)
	return nil
}

func write(c *call, a answer) {
	if a.written {
		return
	}
	h := c.w.Header()
	for k, v := range a.header {
		h.Set(k, v)
	}
	if a.body == nil {
		c.w.WriteHeader(a.status)
		return
	}
	b, err := json.Marshal(a.body)
	if err != nil {
		writeError(c, err)
		return
	}
	h.Set("Content-Type", "application/json")
	c.w.WriteHeader(a.status)
	c.w.Write(append(b, '\n'))
}

// requestID is the client's, if it has a decent one, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:/", r)
	}
	if id != "" && len(id) <= 128 && !strings.ContainsFunc(id, bad) {
		return id
	}
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// recorder notes the status, and writes the last headers just before the first byte.
type recorder struct {
	http.ResponseWriter
	status int
	header func(http.Header)
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
		r.header(r.Header())
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Package clienttest is a server for tests of what calls one: it answers as the API
// and the data plane do, from memory, and can be told to fail.
package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

// Key is what the server asks for.
const Key = "e2b_0123456789abcdef0123456789abcdef01234567"

// pageSize is how long the pages of lists are, whatever was asked for.
const pageSize = 2

// Server is one. It serves API and data plane at one address.
type Server struct {
	URL string
	// Cut cuts every connection.
	Cut func()

	mu        sync.Mutex
	sandboxes []client.Sandbox // oldest first
	snapshots []client.Snapshot
	templates []client.Template
	ended     []client.Ended
	garbage   []cube.Garbage
	plans     []client.Plan
	files     map[cube.SandboxID]map[string]string
	fail      map[string]int // "METHOD /path" to a status
	calls     []Call
	programs  programs
}

// Call is a request that was made of the API.
type Call struct {
	Route string // method and path
	Query string
	Key   string // idempotency key
	Body  map[string]any
}

// New starts a server, with the template base, that ends with the test.
func New(t testing.TB) *Server {
	created := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := &Server{
		files: map[cube.SandboxID]map[string]string{}, fail: map[string]int{}, programs: programs{running: map[uint32]*program{}},
		templates: []client.Template{{
			ID: "tpl-0123456789abcdef01234567", Names: []string{"base"}, CPUs: 2, MemoryMiB: 512, CreatedAt: &created,
		}},
	}
	h := httptest.NewServer(s.handler())
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	s.Cut = h.CloseClientConnections
	t.Cleanup(s.programs.end)
	s.URL = h.URL
	return s
}

// Client returns one that uses the server.
func (s *Server) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{APIURL: s.URL, SandboxURL: s.URL, Key: Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Fail makes every call of a route, such as "POST /sandboxes", fail with a status.
func (s *Server) Fail(route string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[route] = status
}

// Calls returns those that were made of a route.
func (s *Server) Calls(route string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c Call) bool { return c.Route != route })
}

// Add puts a running sandbox of a given id there.
func (s *Server) Add(id cube.SandboxID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(id, client.NewSandbox{Template: "base"})
}

// AddSnapshot puts a snapshot there.
func (s *Server) AddSnapshot(id cube.ImageID, source cube.SandboxID, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addSnapshot(id, source, names...)
}

// AddEnded puts a sandbox there that is no more.
func (s *Server) AddEnded(e client.Ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, e)
}

// AddGarbage puts something there that nothing needs.
func (s *Server) AddGarbage(g cube.Garbage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.garbage = append(s.garbage, g)
}

// AddPlan puts a verb there that is under way.
func (s *Server) AddPlan(p client.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans = append(s.plans, p)
}

// States returns the state of each sandbox.
func (s *Server) States() map[cube.SandboxID]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[cube.SandboxID]string{}
	for _, b := range s.sandboxes {
		out[b.ID] = b.State
	}
	return out
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	s.api(mux)
	s.data(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "req-1")
		w.Header().Set("Server-Timing", "total;dur=1.5")
		data := r.Header.Get("E2b-Sandbox-Id") != ""
		if !data && r.URL.Path != "/health" && r.Header.Get("X-API-Key") != Key {
			fail(w, http.StatusUnauthorized, "the API key is absent or wrong; it is in STATE/key")
			return
		}
		if data {
			r.URL.Path = "/data" + r.URL.Path
		}
		mux.ServeHTTP(w, r)
	})
}

// note keeps a call, and reports whether it is to be answered.
func (s *Server) note(w http.ResponseWriter, r *http.Request) (Call, bool) {
	c := Call{Route: r.Method + " " + r.URL.Path, Query: r.URL.RawQuery, Key: r.Header.Get("Idempotency-Key")}
	if r.ContentLength != 0 {
		if err := json.NewDecoder(r.Body).Decode(&c.Body); err != nil {
			fail(w, http.StatusBadRequest, "validation error: "+err.Error())
			return c, false
		}
	}
	s.calls = append(s.calls, c)
	if status := s.fail[c.Route]; status != 0 {
		failure := map[string]any{"code": status, "message": fmt.Sprintf("told to fail with %d", status)}
		if status == http.StatusUnprocessableEntity {
			failure["error_code"] = "idempotency_key_reused"
		}
		answer(w, status, failure)
		return c, false
	}
	return c, true
}

func fail(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]any{"code": status, "message": message})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// page writes the part of a list that its cursor says.
func page[T any](w http.ResponseWriter, r *http.Request, all []T) {
	from, _ := strconv.Atoi(r.URL.Query().Get("nextToken"))
	to := min(from+pageSize, len(all))
	if to < len(all) {
		w.Header().Set("x-next-token", strconv.Itoa(to))
	}
	answer(w, http.StatusOK, append([]T{}, all[from:to]...))
}

func name(s string) string { return strings.TrimSuffix(s, ":default") }

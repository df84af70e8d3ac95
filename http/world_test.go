package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
	"cubesandbox/service"
)

// testKey is the key of every world that has one.
const testKey = "e2b_00112233445566778899aabbccddeeff00112233"

// world is an API on the real service, on an engine in memory. Every answer that goes
// through call is held against openapi.yaml.
type world struct {
	t        *testing.T
	api      *API
	m        *fake.Machine
	svc      *service.Service
	template cube.ImageID
	log      *lines
	audit    *lines
	spec     *document
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, m: fake.NewMachine(64 << 30), log: &lines{}, audit: &lines{}, spec: readDocument(t)}
	w.template = w.m.AddTemplate([32]byte{1}, cube.Limits{MemoryMiB: 128, CPUs: 2, DiskMiB: 1024, Pids: 128}, nil)
	e := w.m.Open()
	s, err := service.Open(t.Context(), service.Config{
		Engine: e, Store: fake.NewRecords(), Images: fake.Store{Machine: w.m}, Names: names{"base": w.template}, CPUs: 10_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	w.svc = s
	w.api = newAPI(t, w, s, change...)
	return w
}

// newAPI makes the API of a world, on any service.
func newAPI(t *testing.T, w *world, s cube.Service, change ...func(*Config)) *API {
	t.Helper()
	c := Config{
		Service: s, Key: testKey, Domain: "localhost:3002", NodeID: "node", Version: "1.2.3", Audit: w.audit,
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&c)
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// stubbed is a world with another service.
func stubbed(t *testing.T, s cube.Service, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, log: &lines{}, audit: &lines{}, spec: readDocument(t)}
	w.api = newAPI(t, w, s, change...)
	return w
}

// headers of a request, in pairs.
type headers []string

// Those that clients of each dialect send.
var (
	asE2B  = headers{"User-Agent", "e2b-js-sdk/2.51.0", "X-API-Key", testKey}
	asCube = headers{"User-Agent", "python-requests/2.32.5", "X-API-Key", testKey}
)

// with are more headers, or others.
func (h headers) with(pairs ...string) headers { return append(h[:len(h):len(h)], pairs...) }

func request(h headers, method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:3000"
	for i := 0; i < len(h); i += 2 {
		r.Header.Set(h[i], h[i+1])
	}
	return r
}

// reply is an answer.
type reply struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	text   string
}

func record(a *API, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	a.ServeHTTP(rec, r)
	return rec
}

// call sends a request, and holds the answer against openapi.yaml.
func (w *world) call(h headers, method, path, body string) reply {
	w.t.Helper()
	r := request(h, method, path, body)
	rec := record(w.api, r)
	got := reply{w.t, method + " " + path + " " + body, rec.Code, rec.Header(), rec.Body.String()}
	if err := w.check(r, got); err != nil {
		w.t.Errorf("%s: answer %d %s: %v", got.what, got.status, got.text, err)
	}
	return got
}

// want sends a request and wants a status.
func (w *world) want(status int, h headers, method, path, body string) reply {
	w.t.Helper()
	got := w.call(h, method, path, body)
	if got.status != status {
		w.t.Fatalf("%s: %d %s, want %d", got.what, got.status, got.text, status)
	}
	return got
}

// await waits until GET of a path has a status.
func (w *world) await(status int, path string) {
	w.t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for record(w.api, request(asCube, "GET", path, "")).Code != status {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("GET %s has not become %d", path, status)
		}
	}
}

// object is the body.
func (r reply) object() map[string]any {
	r.t.Helper()
	var m map[string]any
	r.into(&m)
	return m
}

// objects is a body that is a list of them.
func (r reply) objects() []map[string]any {
	r.t.Helper()
	var m []map[string]any
	r.into(&m)
	return m
}

func (r reply) into(v any) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.text), v); err != nil {
		r.t.Fatalf("%s: %d %q: %v", r.what, r.status, r.text, err)
	}
}

// says wants the message of an error to have all words.
func (r reply) says(words ...string) {
	r.t.Helper()
	m, _ := r.object()["message"].(string)
	for _, word := range words {
		if !strings.Contains(m, word) {
			r.t.Errorf("%s: message %q, want %q in it", r.what, m, word)
		}
	}
}

// create makes a sandbox and returns its path.
func (w *world) create(h headers) string {
	w.t.Helper()
	return box(w.want(201, h, "POST", "/sandboxes", `{"templateID":"base","timeout":300}`))
}

func box(r reply) string {
	r.t.Helper()
	return fmt.Sprint("/sandboxes/", r.object()["sandboxID"])
}

// lines is what was written, line by line.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// objects are the lines as JSON.
func (l *lines) objects(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

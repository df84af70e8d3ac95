package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	cube "cubesandbox"
	"cubesandbox/internal/ca"
)

const (
	domain = "localhost:3002"
	key    = "e2b_0123456789012345678901234567890123456789"
)

// world is a proxy before sandboxes whose ports are served by this test.
type world struct {
	t    *testing.T
	p    *Proxy
	addr string
	ca   *ca.CA

	mu      sync.Mutex
	routes  map[cube.SandboxID]cube.Route
	ports   map[string]string // id-generation-port → address of the guest's server
	guests  map[cube.SandboxID][]*net.TCPConn
	open    int // requests that were touched and are not done
	sought  int // how often ByToken was called
	touches int
	wakes   int
	dials   int
	doubts  []string // id-generation
	wake    error
	// dialed is called before each dial, if set.
	dialed func(id cube.SandboxID, gen cube.Generation)

	registry *prometheus.Registry
	log      lines
}

// lines is a log that several may write to.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newWorld has a proxy serve on a free port; change is done to it before.
func newWorld(t *testing.T, change ...func(*Proxy)) *world {
	authority, err := ca.Open(t.TempDir(), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ca: authority, routes: map[cube.SandboxID]cube.Route{}, ports: map[string]string{}, guests: map[cube.SandboxID][]*net.TCPConn{}}
	w.registry = prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if w.p, err = New(Config{Sandboxes: w, Domain: domain, TLS: authority.TLSConfig(), Key: key, Log: log, Metrics: w.registry}); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(w.p)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- w.p.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.p.Shutdown(ctx)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return w
}

// sandbox makes one that runs.
func (w *world) sandbox(change ...func(*cube.Route)) cube.SandboxID {
	r := cube.Route{ID: cube.NewSandboxID(), Generation: 1, Phase: cube.PhaseRunning, AccessToken: "access-" + string(cube.NewSandboxID())}
	for _, c := range change {
		c(&r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[r.ID] = r
	return r.ID
}

// serve has a handler answer a port of a life.
func (w *world) serve(id cube.SandboxID, gen, port int, h http.Handler) {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	w.t.Cleanup(s.Close)
	w.at(id, gen, port, s.Listener.Addr().String())
}

func (w *world) at(id cube.SandboxID, gen, port int, addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports[fmt.Sprintf("%s-%d-%d", id, gen, port)] = addr
}

// become puts a sandbox into a phase; ending a life resets its connections, as
// the engine does.
func (w *world) become(id cube.SandboxID, phase cube.Phase, gen cube.Generation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.routes[id]
	r.Phase, r.Generation = phase, gen
	w.routes[id] = r
	for _, c := range w.guests[id] {
		c.SetLinger(0)
		c.Close()
	}
	w.guests[id] = nil
}

func (w *world) Route(_ context.Context, id cube.SandboxID) (cube.Route, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.routes[id]; ok {
		return r, nil
	}
	return cube.Route{}, cube.ErrNotFound
}

func (w *world) Wake(ctx context.Context, id cube.SandboxID) (cube.Route, error) {
	w.mu.Lock()
	err := w.wake
	w.wakes++
	w.mu.Unlock()
	if err != nil {
		return cube.Route{}, err
	}
	w.become(id, cube.PhaseRunning, 2)
	return w.Route(ctx, id)
}

func (w *world) Touch(cube.SandboxID) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	w.touches++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
	}
}

func (w *world) Doubt(id cube.SandboxID, gen cube.Generation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubts = append(w.doubts, fmt.Sprintf("%s-%d", id, gen))
}

func (w *world) touched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// woken is how often Wake was called.
func (w *world) woken() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wakes
}

// searched is how often ByToken was called.
func (w *world) searched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sought
}

// forget has it that a sandbox never was.
func (w *world) forget(id cube.SandboxID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.routes, id)
}

func (w *world) ByToken(fits func(string) bool) (found cube.SandboxID, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sought++
	for id, r := range w.routes {
		if fits(r.AccessToken) {
			found, ok = id, true
		}
	}
	return found, ok
}

// tcp is a pipe to a guest whose resets are seen: a proxy of bytes would hide them.
func (w *world) Dial(ctx context.Context, id cube.SandboxID, gen cube.Generation, port uint16) (net.Conn, error) {
	if w.dialed != nil {
		w.dialed(id, gen)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials++
	if w.routes[id].Generation != gen {
		return nil, fmt.Errorf("generation %d is over: %w", gen, cube.ErrNotFound)
	}
	addr, ok := w.ports[fmt.Sprintf("%s-%d-%d", id, gen, port)]
	if !ok {
		return nil, fmt.Errorf("port %d: %w", port, cube.ErrRefused)
	}
	ours, theirs, err := w.pair(addr)
	if err != nil {
		return nil, err
	}
	w.guests[id] = append(w.guests[id], theirs)
	return ours, nil
}

// pair is a connection to addr by way of one that the test can reset from the
// guest's side.
func (w *world) pair(addr string) (ours net.Conn, theirs *net.TCPConn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if ours, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	mid, err := ln.Accept()
	if err != nil {
		return nil, nil, err
	}
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	theirs = mid.(*net.TCPConn)
	carry := func(dst, src *net.TCPConn) {
		if _, err := io.Copy(dst, src); err != nil {
			for _, c := range []*net.TCPConn{dst, src} {
				c.SetLinger(0)
				c.Close()
			}
			return
		}
		dst.CloseWrite()
	}
	go carry(theirs, server.(*net.TCPConn))
	go carry(server.(*net.TCPConn), theirs)
	return ours, theirs, nil
}

// hostOf is the name of a port of a sandbox.
func name(id cube.SandboxID, port int) string { return fmt.Sprintf("%d-%s.localhost", port, id) }

// request makes one to the proxy.
func (w *world) request(method, host, path string, body io.Reader, headers ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.addr+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// get returns status and body.
func (w *world) get(host, path string, headers ...string) (int, string, http.Header) {
	w.t.Helper()
	return w.do(w.request(http.MethodGet, host, path, nil, headers...))
}

func (w *world) do(r *http.Request) (int, string, http.Header) {
	w.t.Helper()
	resp, err := client1.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b)), resp.Header
}

var client1 = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// secure connects with TLS and says HTTP/1.1 or 2.
func (w *world) secure(serverName, proto string) *tls.Conn {
	w.t.Helper()
	c, err := tls.Dial("tcp", w.addr, &tls.Config{InsecureSkipVerify: true, ServerName: serverName, NextProtos: []string{proto}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after 10 s still not: %s", what)
		}
	}
}

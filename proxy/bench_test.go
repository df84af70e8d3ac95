package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	cube "cubesandbox"
)

// one is a world with one sandbox.
type one struct{ addr string }

func (one) Route(_ context.Context, id cube.SandboxID) (cube.Route, error) {
	return cube.Route{ID: id, Generation: 1, Phase: cube.PhaseRunning}, nil
}
func (o one) Wake(ctx context.Context, id cube.SandboxID) (cube.Route, error) {
	return o.Route(ctx, id)
}
func (one) Doubt(cube.SandboxID, cube.Generation)            {}
func (one) Touch(cube.SandboxID) func()                      { return func() {} }
func (one) ByToken(func(string) bool) (cube.SandboxID, bool) { return "", false }
func (o one) Dial(ctx context.Context, _ cube.SandboxID, _ cube.Generation, _ uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", o.addr)
}

// exchange is a request over a connection that is kept, and the way to end it.
func exchange(t testing.TB, proxied bool) (once func(), end func()) {
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	addr := guest.Listener.Addr().String()
	stop := guest.Close
	if proxied {
		p, err := New(Config{Sandboxes: one{addr}, Domain: domain})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr = ln.Addr().String()
		go p.Serve(ln)
		stop = func() {
			p.Shutdown(context.Background())
			guest.Close()
		}
	}
	c := &http.Client{Transport: &http.Transport{}}
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = name(cube.NewSandboxID(), 80)
	once = func() {
		resp, err := c.Do(r)
		if err != nil || resp.StatusCode != 204 {
			t.Fatalf("%v (%v)", resp, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	once()
	return once, func() {
		c.CloseIdleConnections()
		stop()
	}
}

// TestTheProxyAddsLessThanAMillisecond to a request over kept connections (median).
func TestTheProxyAddsLessThanAMillisecond(t *testing.T) {
	median := func(proxied bool) time.Duration {
		once, end := exchange(t, proxied)
		defer end()
		took := make([]time.Duration, 501)
		for i := range took {
			began := time.Now()
			once()
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	direct, proxied := median(false), median(true)
	t.Logf("direct %s, through the proxy %s", direct, proxied)
	if proxied-direct >= time.Millisecond {
		t.Errorf("it adds %s (direct %s, through the proxy %s), want less than 1 ms", proxied-direct, direct, proxied)
	}
}

// BenchmarkAdded compares a request through the proxy with one without it, both
// over connections that are kept.
func BenchmarkAdded(b *testing.B) {
	for what, proxied := range map[string]bool{"direct": false, "proxied": true} {
		b.Run(what, func(b *testing.B) {
			once, end := exchange(b, proxied)
			defer end()
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
		})
	}
}

package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

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
func (one) Touch(cube.SandboxID) func()                      { return func() {} }
func (one) ByToken(func(string) bool) (cube.SandboxID, bool) { return "", false }
func (o one) Dial(ctx context.Context, _ cube.SandboxID, _ cube.Generation, _ uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", o.addr)
}

func benchmark(b *testing.B, proxied bool) {
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer guest.Close()
	addr := guest.Listener.Addr().String()
	if proxied {
		p, err := New(Config{Sandboxes: one{addr}, Domain: domain})
		if err != nil {
			b.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		addr = ln.Addr().String()
		go p.Serve(ln)
		defer p.Shutdown(context.Background())
	}
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Host = name(cube.NewSandboxID(), 80)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := c.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// BenchmarkAdded compares a request through the proxy with one without it, both
// over connections that are kept.
func BenchmarkAdded(b *testing.B) {
	b.Run("direct", func(b *testing.B) { benchmark(b, false) })
	b.Run("proxied", func(b *testing.B) { benchmark(b, true) })
}

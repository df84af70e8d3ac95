package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	stdhttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
	"cubesandbox/http"
	"cubesandbox/internal/local"
	"cubesandbox/proxy"
	"cubesandbox/service"
	"cubesandbox/sqlite"
)

// Latencies measures what our own layers take, without an engine's work: the API,
// the service and the store on the fake engine with many sandboxes, and the proxy
// before a guest that answers at once. All over kept connections of this machine.
// The result has the times of each row, and direct requests to compare with.
func Latencies(ctx context.Context, sandboxes, n int) (map[string][]time.Duration, error) {
	dir, err := os.MkdirTemp("", "cube-latency-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &layers{rows: map[string][]time.Duration{}, n: n}
	if err := b.open(ctx, dir); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	err = b.measure(ctx, sandboxes)
	return b.rows, errors.Join(err, b.close(ctx))
}

// layers are ours, on a fake engine.
type layers struct {
	rows map[string][]time.Duration
	n    int

	engine   *fake.Engine
	store    *sqlite.Store
	svc      *service.Service
	template cube.ImageID
	guest    *httptest.Server
	api      *httptest.Server
	data     *proxy.Proxy
	dataLn   net.Listener
}

// toGuest dials one server, whatever is asked for.
type toGuest struct {
	*service.Service
	addr string
}

func (t toGuest) Dial(ctx context.Context, _ cube.SandboxID, _ cube.Generation, _ uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", t.addr)
}

func (b *layers) open(ctx context.Context, dir string) (err error) {
	m := fake.NewMachine(1 << 50)
	b.template = m.AddTemplate([32]byte{1}, cube.Limits{MemoryMiB: 128, CPUs: 1, DiskMiB: 64, Pids: 16}, nil)
	b.engine = m.Open()
	if b.store, err = sqlite.Open(filepath.Join(dir, "cube.db")); err != nil {
		return err
	}
	b.svc, err = service.Open(ctx, service.Config{
		Engine: b.engine, Store: b.store, Images: fake.Store{Machine: m}, Names: local.NamesIn(dir), CPUs: 1 << 30,
	})
	if err != nil {
		return err
	}
	api, err := http.New(http.Config{Service: b.svc, Domain: "localhost", Key: latencyKey})
	if err != nil {
		return err
	}
	b.api = httptest.NewServer(api)
	b.guest = httptest.NewServer(stdhttp.HandlerFunc(func(w stdhttp.ResponseWriter, _ *stdhttp.Request) { w.WriteHeader(stdhttp.StatusNoContent) }))
	b.data, err = proxy.New(proxy.Config{Sandboxes: toGuest{b.svc, b.guest.Listener.Addr().String()}, Domain: "localhost"})
	if err != nil {
		return err
	}
	if b.dataLn, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	go b.data.Serve(b.dataLn)
	return nil
}

// latencyKey is asked for by the API that is measured, as by any other.
const latencyKey = "e2b_0000000000000000000000000000000000000000"

func (b *layers) close(ctx context.Context) error {
	var errs []error
	if b.dataLn != nil {
		errs = append(errs, b.data.Shutdown(ctx))
	}
	for _, s := range []*httptest.Server{b.api, b.guest} {
		if s != nil {
			s.CloseClientConnections()
			s.Close()
		}
	}
	if b.svc != nil {
		errs = append(errs, b.svc.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	return errors.Join(append(errs, b.engine.Close())...)
}

func (b *layers) measure(ctx context.Context, sandboxes int) error {
	var id cube.SandboxID
	for range sandboxes {
		r, err := b.svc.Create(ctx, cube.NewSandbox{Template: string(b.template), Timeout: cube.NeverTimeout, Metadata: map[string]string{"a": "b"}})
		if err != nil {
			return err
		}
		id = r.ID
	}
	c := &stdhttp.Client{Transport: &stdhttp.Transport{}}
	defer c.CloseIdleConnections()
	key := stdhttp.Header{"X-Api-Key": {latencyKey}}
	host := fmt.Sprintf("80-%s.localhost", id)
	// In turn, so that what else the machine does falls on all of them.
	for range b.n {
		for _, x := range []struct {
			row, url, host string
			header         stdhttp.Header
		}{
			{"api.layers.get", b.api.URL + "/sandboxes/" + string(id), "", key},
			{fmt.Sprintf("api.layers.list.%d", sandboxes), b.api.URL + "/sandboxes", "", key},
			{"api.layers.page.100", b.api.URL + "/v2/sandboxes", "", key},
			{"proxy.layers.direct", b.guest.URL + "/", "", nil},
			{"proxy.layers.through", "http://" + b.dataLn.Addr().String() + "/", host, nil},
		} {
			took, err := timed(ctx, c, x.url, x.host, x.header)
			if err != nil {
				return fmt.Errorf("%s: %w", x.row, err)
			}
			b.rows[x.row] = append(b.rows[x.row], took)
		}
	}
	added := make([]time.Duration, b.n)
	for i, t := range b.rows["proxy.layers.through"] {
		added[i] = t - b.rows["proxy.layers.direct"][i]
	}
	slices.Sort(added)
	b.rows["proxy.added"] = added
	return nil
}

func timed(ctx context.Context, c *stdhttp.Client, url, host string, h stdhttp.Header) (time.Duration, error) {
	r, err := stdhttp.NewRequestWithContext(ctx, stdhttp.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r.Host = host
	for k, v := range h {
		r.Header[k] = v
	}
	began := time.Now()
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if resp.StatusCode >= 300 {
		return 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	return took, nil
}

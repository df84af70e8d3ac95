package serve

import (
	"context"
	"errors"
	"net"
	stdhttp "net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"cubesandbox/http"
	"cubesandbox/internal/ca"
	"cubesandbox/proxy"
	"cubesandbox/service"
)

// fronts are the two servers before a service.
type fronts struct {
	api   *stdhttp.Server
	data  *proxy.Proxy
	audit *os.File
}

func (o Options) fronts(svc *service.Service, key string, authority *ca.CA) (_ *fronts, err error) {
	f := &fronts{}
	// Its lines survive the server: they are only ever appended.
	if f.audit, err = os.OpenFile(filepath.Join(o.StateDir, "audit.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.audit.Close()
		}
	}()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	api, err := http.New(http.Config{
		Service: svc, Key: key, Domain: o.Domain, Version: o.Version, Dialect: o.Dialect, MaxTimeout: o.MaxTimeout,
		Log: o.Log, Audit: f.audit, Metrics: metrics, Phases: svc.Phases,
	})
	if err != nil {
		return nil, err
	}
	f.api = &stdhttp.Server{
		Handler: api, ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 620 * time.Second, MaxHeaderBytes: 64 << 10,
	}
	f.data, err = proxy.New(proxy.Config{
		Sandboxes: svc, Domain: o.Domain, TLS: authority.TLSConfig(), Key: key, Log: o.Log, Metrics: metrics,
	})
	return f, err
}

func (f *fronts) close() { f.audit.Close() }

// serve serves until ctx ends or a listener fails, and then lets requests end.
func (f *fronts) serve(ctx context.Context, api, data net.Listener, ready func() error) error {
	failed := make(chan error, 2)
	go func() { failed <- f.api.Serve(api) }()
	go func() { failed <- f.data.Serve(data) }()
	err := ready()
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
			failed <- stdhttp.ErrServerClosed // in its place
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err = errors.Join(err, f.stop(stop))
	for range 2 {
		if e := <-failed; !errors.Is(e, stdhttp.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// stop ends both at the same time; what does not end by itself is cut.
func (f *fronts) stop(ctx context.Context) error {
	data := make(chan error, 1)
	go func() { data <- f.data.Shutdown(ctx) }()
	err := f.api.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = f.api.Close()
	}
	if e := <-data; !errors.Is(e, context.DeadlineExceeded) {
		err = errors.Join(err, e)
	}
	return err
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	cube "cubesandbox"
)

// Time limits. There is none on a request: streams last for hours.
const (
	// headerTime bounds how long a client may take for its first byte and for the
	// headers of a request.
	headerTime = 20 * time.Second
	// idleTime is how long a client's connection may be idle: longer than clients
	// keep theirs (E2B's: 300 s), so that none meets one that we are just closing.
	idleTime = 620 * time.Second
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 128 << 10
	// maxStreams is how many requests one HTTP/2 connection carries at a time.
	maxStreams = 2000
)

// Sandboxes is the part of cube.Service that requests need.
type Sandboxes interface {
	Route(ctx context.Context, id cube.SandboxID) (cube.Route, error)
	Wake(ctx context.Context, id cube.SandboxID) (cube.Route, error)
	Touch(id cube.SandboxID) (done func())
	ByToken(fits func(token string) bool) (cube.SandboxID, bool)
	Dial(ctx context.Context, id cube.SandboxID, gen cube.Generation, port uint16) (net.Conn, error)
}

// Config is what a proxy needs.
type Config struct {
	Sandboxes Sandboxes
	// Domain is what sandboxes' host names end in; a port in it does not matter.
	Domain string
	// TLS is for connections that begin with a TLS hello; nil refuses them.
	TLS *tls.Config
	// Key is the API key. A request to envd that carries it needs no access token.
	// Empty: there is none.
	Key     string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Proxy forwards requests to sandboxes.
type Proxy struct {
	sandboxes Sandboxes
	domain    string // without port, lower case
	tls       *tls.Config
	key       string
	log       *slog.Logger
	metrics   *metrics
	server    *http.Server
	plain     http.RoundTripper // HTTP/1.1 to the guest
	h2c       http.RoundTripper // HTTP/2 to the guest, for gRPC

	mu      sync.Mutex // guards closing
	closing bool
	peeking sync.WaitGroup
}

// New makes a proxy. It serves when Serve is called.
func New(c Config) (*Proxy, error) {
	if c.Domain == "" {
		return nil, fmt.Errorf("the proxy needs a domain: %w", cube.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{sandboxes: c.Sandboxes, domain: hostOnly(c.Domain), tls: c.TLS, key: c.Key, log: c.Log}
	var err error
	if p.metrics, err = newMetrics(c.Metrics); err != nil {
		return nil, err
	}
	p.plain, p.h2c = p.transport(false), p.transport(true)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ConnContext: withClient, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// Serve serves a listener, plain and TLS, until Shutdown; then it returns
// http.ErrServerClosed.
func (p *Proxy) Serve(ln net.Listener) error {
	plain, secure := newHandoff(ln.Addr()), newHandoff(ln.Addr())
	served := make(chan error, 2)
	go func() { served <- p.server.Serve(plain) }()
	go func() { served <- p.server.Serve(secure) }()
	err := p.accept(ln, plain, secure)
	plain.Close()
	secure.Close()
	first, second := <-served, <-served
	if p.isClosing() {
		return http.ErrServerClosed
	}
	return errors.Join(err, first, second)
}

// Shutdown stops accepting, waits for requests under way until ctx ends, and
// then cuts what is left.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	err := p.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, p.server.Close())
	}
	for _, t := range []http.RoundTripper{p.plain, p.h2c} {
		t.(*http.Transport).CloseIdleConnections()
	}
	p.peeking.Wait()
	return err
}

func (p *Proxy) isClosing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
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
	// streamBuffer and connBuffer are how much a client may send, in bytes, that the
	// guest has not read: of one HTTP/2 request, and of all of a connection. Guests
	// that do not read must not hold up others behind the same connection.
	streamBuffer = 1 << 20
	connBuffer   = 32 << 20
)

// cutTime is how long requests that are cut may take to reset their connections
// by themselves.
const cutTime = 250 * time.Millisecond

// Sandboxes is the part of cube.Service that requests need.
type Sandboxes interface {
	Route(ctx context.Context, id cube.SandboxID) (cube.Route, error)
	Wake(ctx context.Context, id cube.SandboxID) (cube.Route, error)
	Touch(id cube.SandboxID) (done func())
	Doubt(id cube.SandboxID, gen cube.Generation)
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
	patience  time.Duration // headerTime, but in tests
	// doubtAfter is the constant, but in tests.
	doubtAfter time.Duration
	server     *http.Server
	plain      *http.Transport // HTTP/1.1 to the guest
	h2c        *http.Transport // HTTP/2 to the guest, for gRPC

	stopping context.Context // ends when streams are to end
	stop     context.CancelFunc
	ctx      context.Context // ends when what is under way is cut
	cut      context.CancelFunc
	closing  atomic.Bool
	serving  work // calls of Serve
	working  work // requests, open streams and upgraded connections included

	searches chan struct{} // has one for each search by signature
}

// New makes a proxy. It serves when Serve is called.
func New(c Config) (*Proxy, error) {
	if c.Domain == "" {
		return nil, fmt.Errorf("the proxy needs a domain: %w", cube.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{sandboxes: c.Sandboxes, tls: c.TLS, key: c.Key, log: c.Log, patience: headerTime, doubtAfter: doubtAfter}
	var ok bool
	if p.domain, ok = hostOnly(c.Domain); !ok {
		return nil, fmt.Errorf("domain %q: want a host name: %w", c.Domain, cube.ErrInvalid)
	}
	if c.TLS != nil && len(c.TLS.NextProtos) == 0 {
		p.tls = c.TLS.Clone()
		p.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	var err error
	if p.metrics, err = newMetrics(c.Metrics); err != nil {
		return nil, err
	}
	p.ctx, p.cut = context.WithCancel(context.Background())
	p.stopping, p.stop = context.WithCancel(p.ctx)
	p.plain, p.h2c = p.transport(false), p.transport(true)
	p.searches = make(chan struct{}, mostSearches)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
		},
		BaseContext: func(net.Listener) context.Context { return p.ctx }, ConnContext: withClient, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// Serve serves a listener, plain and TLS, until Shutdown; then it returns
// http.ErrServerClosed. When the listener fails, Serve returns why, and the
// connections that there are go on.
func (p *Proxy) Serve(ln net.Listener) error {
	defer p.serving.begin()()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	plain, secure := newHandoff(ln.Addr()), newHandoff(ln.Addr())
	served := make(chan error, 2)
	for _, h := range []*handoff{plain, secure} {
		go func() {
			defer cancel() // the server has been shut down
			defer h.Close()
			served <- p.server.Serve(h)
		}()
	}
	err := p.accept(ctx, ln, plain, secure)
	plain.Close()
	secure.Close()
	<-served
	<-served
	if p.closing.Load() {
		return http.ErrServerClosed
	}
	return fmt.Errorf("serve sandboxes: %w", err)
}

// Shutdown stops accepting, ends streams, waits for other requests under way until ctx
// ends, and then cuts what is left: their clients see a reset. Streams of Connect, gRPC
// and WebSockets end with their own word for a server that will be back; those whose
// protocol has none are cut. When it returns, nothing of the proxy runs any more.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.closing.Store(true)
	p.stop()
	err := p.server.Shutdown(ctx)
	if err == nil {
		err = p.working.wait(ctx) // those whose connections were upgraded
	}
	p.cut()
	if err != nil {
		soon, cancel := context.WithTimeout(context.Background(), cutTime)
		p.working.wait(soon)
		cancel()
		err = errors.Join(err, p.server.Close()) // those that wait for their client
	}
	p.working.wait(context.Background())
	p.serving.wait(context.Background())
	p.plain.CloseIdleConnections()
	p.h2c.CloseIdleConnections()
	return err
}

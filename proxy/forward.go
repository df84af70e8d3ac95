package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	cube "cubesandbox"
)

// Connections to guests that wait for the next request.
const (
	// idlePerPort is how many, for each port of each life.
	idlePerPort = 64
	// idleGuest is how long.
	idleGuest = 90 * time.Second
)

// transport makes one for HTTP/1.1 or for HTTP/2. Connections are kept by the
// name that authority gives: never shared between lives.
func (p *Proxy) transport(http2 bool) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Transport{
		DialContext: p.dial, Protocols: &protocols, DisableCompression: true,
		MaxIdleConnsPerHost: idlePerPort, IdleConnTimeout: idleGuest, ExpectContinueTimeout: time.Second,
		WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10, MaxResponseHeaderBytes: 1 << 20,
	}
}

// authority names a port of one life of a sandbox.
func authority(id cube.SandboxID, gen cube.Generation, port uint16) string {
	return fmt.Sprintf("%s-%d-%d", id, gen, port)
}

// dial connects to what authority named.
func (p *Proxy) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	f := strings.Split(name, "-")
	if len(f) != 3 {
		return nil, fmt.Errorf("%q names no port of a sandbox", addr)
	}
	gen, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(f[2], 10, 16)
	if err != nil {
		return nil, err
	}
	c, err := p.sandboxes.Dial(ctx, cube.SandboxID(f[0]), cube.Generation(gen), uint16(port))
	if err != nil {
		return nil, err
	}
	return &guest{Conn: c}, nil
}

// forward takes a request to a life, and brings back what it says.
func (p *Proxy) forward(w *recorder, r *http.Request, t target, route cube.Route) {
	if t.port == controlPort {
		say(w, r, closedPort(t))
		return
	}
	end := &ending{conn: clientOf(r.Context())}
	w.end = end
	defer func() {
		if e := recover(); e != nil {
			// What the guest began to say did not come to its end.
			if r.ProtoMajor == 1 && end.conn != nil {
				end.conn.reset()
			}
			panic(e)
		}
	}()
	if r.ProtoMajor == 1 {
		// A guest may answer while it still reads.
		http.NewResponseController(w).EnableFullDuplex()
	}
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: end.got})
	rp := httputil.ReverseProxy{
		Rewrite:       func(q *httputil.ProxyRequest) { p.rewrite(q, t, route) },
		Transport:     p.plain,
		FlushInterval: -1,
		BufferPool:    buffers{},
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { p.failed(w, r, t, err) },
		ErrorLog:      p.server.ErrorLog,
	}
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		rp.Transport = p.h2c
	}
	rp.ServeHTTP(w, r.WithContext(ctx))
}

// rewrite makes the guest's request of the client's.
func (p *Proxy) rewrite(q *httputil.ProxyRequest, t target, route cube.Route) {
	h := q.Out.Header
	if t.port == envdPort && h.Get(accessHeader) == "" && route.AccessToken != "" && p.hasKey(q.In) {
		h.Set(accessHeader, route.AccessToken)
	}
	if p.bearsKey(q.In) {
		h.Del("Authorization")
	}
	for _, name := range append([]string{keyHeader, idHeader, portHeader}, trafficHeaders...) {
		h.Del(name)
	}
	q.Out.URL.Scheme = "http"
	q.Out.URL.Host = authority(route.ID, route.Generation, t.port)
	q.Out.Host = q.In.Host
	if t.prefix != "" {
		strip(q.Out.URL, t.prefix)
		h.Set("X-Forwarded-Prefix", t.prefix)
	} else {
		h.Del("X-Forwarded-Prefix")
	}
	q.SetXForwarded()
	if route.MaskHost != "" && t.port != envdPort {
		q.Out.Host = strings.ReplaceAll(route.MaskHost, "${PORT}", strconv.Itoa(int(t.port)))
	}
}

// strip takes an escaped prefix off a path.
func strip(u *url.URL, prefix string) {
	rest := strings.TrimPrefix(u.EscapedPath(), prefix)
	if rest == "" {
		rest = "/"
	}
	plain, err := url.PathUnescape(rest)
	if err != nil {
		return // it came unescaped out of the same text
	}
	u.Path, u.RawPath = plain, rest
}

// failed answers a request that the guest did not answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, t target, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits
	}
	// It may have failed because the life has just ended.
	route, rerr := p.sandboxes.Route(r.Context(), t.id)
	switch {
	case errors.Is(rerr, cube.ErrNotFound):
		say(w, r, absent(r, t.id, ""))
	case rerr == nil && route.Phase != cube.PhaseRunning:
		say(w, r, absent(r, t.id, route.Phase))
	case errors.Is(err, cube.ErrRefused):
		say(w, r, closedPort(t))
	case errors.Is(err, cube.ErrDead):
		say(w, r, absent(r, t.id, cube.PhaseEnded))
	default:
		p.log.Debug("no answer", "sandbox", t.id, "port", t.port, "error", err)
		say(w, r, answer{SandboxID: t.id, Port: t.port, Code: http.StatusBadGateway,
			Message: "The connection to the sandbox ended before it answered; the request may have been at work"})
	}
}

// buffers are those that bodies are copied through.
type buffers struct{}

var pool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { pool.Put((*[32 << 10]byte)(b)) }

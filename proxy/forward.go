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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cube "cubesandbox"
)

// Connections to guests that wait for the next request.
const (
	// idlePerPort is how many, for each port of each life, and idleInAll for all.
	idlePerPort = 64
	idleInAll   = 2048
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
		MaxIdleConnsPerHost: idlePerPort, MaxIdleConns: idleInAll, IdleConnTimeout: idleGuest,
		ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 1 << 20,
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
		return nil, undialed{err}
	}
	return &guest{Conn: c}, nil
}

// undialed is the error of a request that has not been sent, because there is no
// connection to send it over.
type undialed struct{ error }

func (u undialed) Unwrap() error { return u.error }

// forward takes a request to a life, and brings back what it says. It reports
// whether that is the end of it: it is not when that life was over before anything
// was sent.
func (p *Proxy) forward(w *recorder, r *http.Request, t target, route cube.Route) (done bool) {
	if t.port == controlPort {
		say(w, r, closedPort(t))
		return true
	}
	end := &ending{conn: clientOf(r)}
	ctx, cancel := context.WithCancelCause(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: end.got}))
	r = r.WithContext(ctx)
	w.end, w.request, w.cancel = end, r, cancel
	defer w.done()
	begun := w.endable(t.port)
	answered := p.doubting(t, route.Generation)
	defer answered()
	body := uploadOf(r)
	defer func() {
		if e := recover(); e != nil {
			// What the guest began to say did not come to its end.
			w.reset = true
			if end.conn != nil {
				end.conn.reset()
			}
			panic(e)
		}
		if done && !body.leave() && end.conn != nil {
			end.conn.spend()
		}
	}()
	if r.ProtoMajor == 1 {
		// A guest may answer while it still reads.
		http.NewResponseController(w).EnableFullDuplex()
	}
	done = true
	rp := httputil.ReverseProxy{
		Rewrite:       func(q *httputil.ProxyRequest) { p.rewrite(q, t, route) },
		Transport:     p.plain,
		FlushInterval: -1,
		BufferPool:    buffers{},
		ModifyResponse: func(resp *http.Response) error {
			answered()
			if resp.StatusCode == http.StatusSwitchingProtocols {
				return asAsked(resp)
			}
			closeUnless(body.complete(), r, resp.Header)
			w.watch(resp, begun)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if done = !over(err) || !body.fresh(); !done {
				return
			}
			closeUnless(body.complete(), r, w.Header())
			switch {
			case context.Cause(ctx) == errRestart:
				restart(w, r)
			case body.failed() != nil && r.Context().Err() == nil:
				say(w, r, answer{SandboxID: t.id, Message: "The body of the request could not be read", Code: http.StatusBadRequest})
			default:
				p.failed(w, r, t, route, err)
			}
		},
		ErrorLog: p.server.ErrorLog,
	}
	if r.ProtoMajor == 2 && isGRPC(r) {
		rp.Transport = p.h2c
	}
	rp.ServeHTTP(w, r)
	return done
}

// closeUnless makes an answer the last one of a connection of HTTP/1 whose request
// has not been read to its end.
func closeUnless(complete bool, r *http.Request, h http.Header) {
	if !complete && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
}

// unsent reports whether there was no connection to send a request over.
func unsent(err error) bool {
	var u undialed
	return errors.As(err, &u)
}

// over reports whether a request was not sent because the life that it was meant
// for is no more.
func over(err error) bool { return unsent(err) && errors.Is(err, cube.ErrNotFound) }

// isGRPC reports whether a request is one of gRPC, which needs HTTP/2 all the way.
// gRPC-Web does not.
func isGRPC(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
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
	for name := range h {
		if private(name) {
			delete(h, name)
		}
	}
	if !mayUpgrade(q.In, t) {
		h.Del("Connection")
		h.Del("Upgrade")
	}
	q.Out.URL.Scheme = "http"
	q.Out.URL.Host = authority(route.ID, route.Generation, t.port)
	q.Out.Host = q.In.Host
	if t.prefix != "" {
		strip(q.Out.URL, t.prefix)
		h.Set("X-Forwarded-Prefix", t.prefix)
	}
	q.SetXForwarded()
	q.Out.Trailer = q.In.Trailer // its values come when the body has been read
	if route.MaskHost != "" && t.port != envdPort {
		q.Out.Host = strings.ReplaceAll(route.MaskHost, "${PORT}", strconv.Itoa(int(t.port)))
	}
}

// private reports whether a header is for us alone, or says what only we can know.
func private(name string) bool {
	return name == http.CanonicalHeaderKey(keyHeader) || name == "X-Real-Ip" || name == "Http2-Settings" ||
		strings.HasPrefix(name, "E2b-Sandbox-") || strings.HasPrefix(name, "X-Forwarded-") ||
		slices.ContainsFunc(trafficHeaders, func(h string) bool { return name == http.CanonicalHeaderKey(h) })
}

// mayUpgrade reports whether a connection may become something that we do not
// read. An upgrade to HTTP/2 is for one hop alone (RFC 9113 3.1) and would carry
// requests that nobody has checked, as any upgrade of envd would.
func mayUpgrade(r *http.Request, t target) bool {
	return t.port != envdPort && !strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Upgrade"), ",")), "h2c")
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
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, t target, route cube.Route, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits
	}
	if doubtful(t, err) {
		p.sandboxes.Doubt(t.id, route.Generation)
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
	case unsent(err):
		p.log.Warn("a sandbox could not be reached", "sandbox", t.id, "port", t.port, "error", err)
		say(w, r, unreachable(r, t))
	default:
		p.log.Debug("no answer", "sandbox", t.id, "port", t.port, "error", err)
		say(w, r, lost(t))
	}
}

// buffers are those that bodies are copied through.
type buffers struct{}

var pool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { pool.Put((*[32 << 10]byte)(b)) }

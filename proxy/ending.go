package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"sync/atomic"
)

// guest is a connection into a sandbox. It notes when the sandbox's end of it
// broke, which a kill, a rollback and a pause do.
type guest struct {
	net.Conn
	broken atomic.Bool
}

func (g *guest) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if err != io.EOF {
		g.note(err)
	}
	return n, err
}

func (g *guest) Write(b []byte) (int, error) {
	n, err := g.Conn.Write(b)
	g.note(err)
	return n, err
}

// note takes every error but those that we make ourselves for a broken connection.
func (g *guest) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		g.broken.Store(true)
	}
}

// CloseWrite ends our side alone.
func (g *guest) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// ending knows both connections of a request, to end the client's as the guest's
// has ended.
type ending struct {
	conn  *client
	guest atomic.Pointer[guest]
}

func (e *ending) got(i httptrace.GotConnInfo) {
	if g, ok := i.Conn.(*guest); ok {
		e.guest.Store(g)
	}
}

func (e *ending) broken() bool {
	g := e.guest.Load()
	return g != nil && g.broken.Load()
}

// recorder notes how a request ended, and hands out connections that end as the
// guest's.
type recorder struct {
	http.ResponseWriter
	proxy  *Proxy
	status int  // 0: no answer yet
	reset  bool // the answer was cut
	end    *ending
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Hijack implements http.Hijacker.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// Clients may send more right behind the request, and net/http has read it.
	early, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	r.status = http.StatusSwitchingProtocols
	return &upgraded{Conn: c, rec: r, early: slices.Clone(early)}, rw, nil
}

// upgraded is a client's connection after an upgrade.
type upgraded struct {
	net.Conn
	rec   *recorder
	early []byte // what was read before the upgrade
}

func (u *upgraded) Read(b []byte) (int, error) {
	if len(u.early) > 0 {
		n := copy(b, u.early)
		u.early = u.early[n:]
		return n, nil
	}
	return u.Conn.Read(b)
}

// Close resets the connection when the guest's was, or when we cut it.
func (u *upgraded) Close() error {
	if u.rec.end.conn != nil && (u.rec.end.broken() || u.rec.proxy.ctx.Err() != nil) {
		u.rec.reset = true
		u.rec.end.conn.reset()
		return nil
	}
	return u.Conn.Close()
}

// CloseWrite ends our side alone, unless the guest's was reset.
func (u *upgraded) CloseWrite() error {
	if u.rec.end.broken() {
		return nil
	}
	if t, ok := u.Conn.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	if u.rec.end.conn != nil {
		return u.rec.end.conn.CloseWrite()
	}
	return nil
}

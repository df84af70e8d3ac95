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
	if err != nil && err != io.EOF && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		g.broken.Store(true)
	}
	return n, err
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

// recorder notes the status, and hands out connections that end as the guest's.
type recorder struct {
	http.ResponseWriter
	status int
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
	return &upgraded{Conn: c, end: r.end}, rw, nil
}

// upgraded is a client's connection after an upgrade.
type upgraded struct {
	net.Conn
	end *ending
}

// Close resets the connection when the guest's was.
func (u *upgraded) Close() error {
	if u.end.broken() && u.end.conn != nil {
		u.end.conn.reset()
		return nil
	}
	return u.Conn.Close()
}

// CloseWrite ends our side alone, unless the guest's was reset.
func (u *upgraded) CloseWrite() error {
	if u.end.broken() {
		return nil
	}
	if t, ok := u.Conn.(*tls.Conn); ok {
		return t.CloseWrite()
	}
	if u.end.conn != nil {
		return u.end.conn.CloseWrite()
	}
	return nil
}

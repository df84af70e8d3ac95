package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"sync"
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
	// request is the one that was sent to the guest, and cancel ends it.
	request *http.Request
	cancel  context.CancelCauseFunc
	hooks   []func() bool // what whenStopping registered

	mu sync.Mutex // held while the request is ended: then the answer is still there
}

// done ends the request that was sent, and takes back what whenStopping did.
func (r *recorder) done() {
	r.unhook()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel(nil)
}

// whenStopping has f called, by a goroutine of its own, when streams are to end, unless
// the request has ended before.
func (r *recorder) whenStopping(f func()) {
	r.hooks = append(r.hooks, context.AfterFunc(r.proxy.stopping, f))
}

// unhook takes back what whenStopping did.
func (r *recorder) unhook() {
	for _, stop := range r.hooks {
		stop()
	}
	r.hooks = nil
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
	u := newUpgraded(c, r, slices.Clone(early))
	r.whenStopping(u.leave)
	return u, rw, nil
}

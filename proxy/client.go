package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// lingerTime is how long a client may still send what nobody reads, so that it
// gets to its answer and not to a reset.
const lingerTime = 2 * time.Second

// client is a client's connection, with the byte that was looked at. It is one that
// the kernel resets: where this process is killed, nobody may take that for a clean end.
// Close makes it another.
type client struct {
	net.Conn
	first  [1]byte
	peeked bool
	spent  atomic.Bool           // nothing more is to be read
	failed atomic.Pointer[error] // what a write failed with
	cut    context.Context       // when it has ended, Close does not look like a clean end
}

func (c *client) Read(b []byte) (int, error) {
	if c.spent.Load() {
		return 0, io.EOF
	}
	if c.peeked && len(b) > 0 {
		b[0], c.peeked = c.first[0], false
		return 1, nil
	}
	return c.Conn.Read(b)
}

// Write fails for good once it has failed: behind a part of a record or a chunk nothing can
// be said. TLS would try to, for 5 s, when it is closed.
func (c *client) Write(b []byte) (int, error) {
	if err := c.failed.Load(); err != nil {
		return 0, *err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.failed.Store(&err)
	}
	return n, err
}

// spend makes the request under way the last one of the connection: what comes
// behind its answer would be the rest of its body, taken for a request. A read
// that is at work ends.
func (c *client) spend() {
	c.spent.Store(true)
	c.SetReadDeadline(time.Unix(1, 0))
}

// CloseWrite ends our side alone.
func (c *client) CloseWrite() error {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		return t.CloseWrite()
	}
	return nil
}

func (c *client) Close() error {
	switch {
	case c.cut != nil && c.cut.Err() != nil:
		c.abort()
	case c.spent.Load():
		c.lingering(-1)
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(lingerTime))
		io.Copy(io.Discard, c.Conn)
	default:
		c.lingering(-1)
	}
	return c.Conn.Close()
}

// reset closes the connection so that the other side cannot take it for a clean
// end: with RST, and below TLS.
func (c *client) reset() {
	c.abort()
	c.Conn.Close()
}

// abort makes the end of the connection a reset.
func (c *client) abort() { c.lingering(0) }

// lingering is SO_LINGER, in seconds: 0 for a reset, -1 for an end that is sent behind
// what was written.
func (c *client) lingering(seconds int) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.SetLinger(seconds)
	}
}

type clientKey struct{}

// withClient notes a request's connection in its context.
func withClient(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, clientKey{}, c)
}

// clientOf is the connection of an HTTP/1 request; nil where ending the request
// must not end the connection.
func clientOf(r *http.Request) *client {
	if r.ProtoMajor != 1 {
		return nil
	}
	c, _ := r.Context().Value(clientKey{}).(*client)
	return c
}

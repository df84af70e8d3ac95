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

// client is a client's connection, with the byte that was looked at.
type client struct {
	net.Conn
	first  [1]byte
	peeked bool
	spent  atomic.Bool     // nothing more is to be read
	cut    context.Context // when it has ended, Close does not look like a clean end
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
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(lingerTime))
		io.Copy(io.Discard, c.Conn)
	}
	return c.Conn.Close()
}

// reset closes the connection so that the other side cannot take it for a clean
// end: with RST, and below TLS.
func (c *client) reset() {
	c.abort()
	c.Conn.Close()
}

func (c *client) abort() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
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

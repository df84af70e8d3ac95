package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// tlsHandshake is the first byte of a TLS connection (RFC 8446 5.1: the content
// type of a handshake record). No HTTP request begins with it.
const tlsHandshake = 22

// accept tells plain and TLS connections apart, until the listener fails.
func (p *Proxy) accept(ln net.Listener, plain, secure *handoff) error {
	stop := context.AfterFunc(plain.ctx, func() { ln.Close() })
	defer stop()
	defer ln.Close()
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		p.peeking.Go(func() { p.sort(c, plain, secure) })
	}
}

// sort looks at a connection's first byte. A client that sends none is let go.
func (p *Proxy) sort(c net.Conn, plain, secure *handoff) {
	conn := &client{Conn: c}
	conn.SetReadDeadline(time.Now().Add(headerTime))
	stop := context.AfterFunc(plain.ctx, func() { conn.Close() })
	if _, err := c.Read(conn.first[:]); err != nil {
		stop()
		conn.Close()
		return
	}
	stop()
	conn.SetReadDeadline(time.Time{})
	conn.peeked = true
	switch {
	case conn.first[0] != tlsHandshake:
		plain.give(conn)
	case p.tls != nil:
		secure.give(tls.Server(conn, p.tls))
	default:
		conn.Close()
	}
}

// client is a client's connection, with the byte that was looked at.
type client struct {
	net.Conn
	first  [1]byte
	peeked bool
}

func (c *client) Read(b []byte) (int, error) {
	if c.peeked && len(b) > 0 {
		b[0], c.peeked = c.first[0], false
		return 1, nil
	}
	return c.Conn.Read(b)
}

// CloseWrite ends our side alone.
func (c *client) CloseWrite() error {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		return t.CloseWrite()
	}
	return nil
}

// reset closes the connection so that the other side cannot take it for a clean
// end: with RST, and below TLS.
func (c *client) reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

type clientKey struct{}

// withClient notes a request's connection in its context.
func withClient(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, clientKey{}, c)
}

// clientOf is the connection of a request; nil in tests without one.
func clientOf(ctx context.Context) *client {
	c, _ := ctx.Value(clientKey{}).(*client)
	return c
}

// handoff is a listener whose connections somebody else accepts.
type handoff struct {
	addr   net.Addr
	conns  chan net.Conn
	ctx    context.Context
	cancel context.CancelFunc
	once   sync.Once
}

func newHandoff(addr net.Addr) *handoff {
	h := &handoff{addr: addr, conns: make(chan net.Conn)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

func (h *handoff) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.ctx.Done():
		c.Close()
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(h.cancel)
	return nil
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return h.addr }

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// tlsHandshake is the first byte of a TLS connection (RFC 8446 5.1: the content
// type of a handshake record). No HTTP request begins with it.
const tlsHandshake = 22

// The pause after a connection that could not be accepted for want of something
// that others will give back; it doubles each time.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// accept tells plain and TLS connections apart, until the listener fails or ctx
// ends, and returns when all have been handed on.
func (p *Proxy) accept(ctx context.Context, ln net.Listener, plain, secure *handoff) error {
	ctx, cancel := context.WithCancel(ctx)
	var peeking sync.WaitGroup
	defer peeking.Wait()
	defer cancel()
	defer ln.Close()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	pause := firstPause
	for {
		c, err := ln.Accept()
		if err == nil {
			pause = firstPause
			peeking.Go(func() { p.sort(ctx, c, plain, secure) })
			continue
		}
		if ctx.Err() != nil || !passing(err) {
			return err
		}
		p.log.Warn("a connection could not be accepted", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			return err
		}
	}
}

// passing reports whether there may be descriptors and memory again in a moment: a
// crowd of clients must not end the proxy.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sort looks at a connection's first byte. A client that sends none is let go.
func (p *Proxy) sort(ctx context.Context, c net.Conn, plain, secure *handoff) {
	conn := &client{Conn: c, cut: p.ctx}
	conn.abort()
	conn.SetReadDeadline(time.Now().Add(p.patience))
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err := c.Read(conn.first[:])
	stop()
	if err != nil {
		conn.Close()
		return
	}
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

// handoff is a listener whose connections somebody else accepts.
type handoff struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandoff(addr net.Addr) *handoff {
	return &handoff{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *handoff) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		c.Close()
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return h.addr }

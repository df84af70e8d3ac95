package fake

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	cube "cubesandbox"
)

// Server serves one connection inside a guest and returns when it is done or the
// connection ends.
type Server func(g Guest, c net.Conn)

// Serve has every sandbox of the machine listen on a port.
func (m *Machine) Serve(port uint16, s Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers[port] = s
}

// conn is the caller's end of a connection into a guest.
type conn struct {
	net.Conn // one end of a net.Pipe
	inner    net.Conn
	life     *life
	isReset  atomic.Bool
	once     sync.Once
	served   chan struct{} // closed when the server has returned
}

// Dial implements cube.Engine.
func (e *Engine) Dial(ctx context.Context, id cube.SandboxID, gen cube.Generation, port uint16) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := e.alive(id)
	if err != nil {
		return nil, err
	}
	if gen != 0 && gen != s.Generation {
		return nil, fmt.Errorf("dial %s: generation %d is over, it is %d: %w", id, gen, s.Generation, cube.ErrNotFound)
	}
	serve := m.servers[port]
	if serve == nil {
		return nil, fmt.Errorf("dial %s: nothing listens on port %d: %w", id, port, cube.ErrRefused)
	}
	outer, inner := net.Pipe()
	c := &conn{Conn: outer, inner: inner, life: s.life, served: make(chan struct{})}
	c.life.mu.Lock()
	c.life.conns[c] = struct{}{}
	c.life.mu.Unlock()
	go func() { // ends with the connection, at the latest when the life does
		defer close(c.served)
		defer inner.Close()
		serve(Guest{c.life}, inner)
	}()
	return c, nil
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.explain(err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

// explain makes the end of a life a reset: never an orderly end of the stream,
// which a reader would take for a complete answer.
func (c *conn) explain(err error) error {
	if err != nil && c.isReset.Load() {
		return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return err
}

// Close waits until the server inside has seen it.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.Conn.Close()
		<-c.served
		c.life.mu.Lock()
		delete(c.life.conns, c)
		c.life.mu.Unlock()
	})
	return nil
}

// reset ends the connection from inside. It does not wait for the server, which
// Close does.
func (c *conn) reset() {
	c.isReset.Store(true)
	c.inner.Close()
	c.Conn.Close()
}

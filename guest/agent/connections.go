package agent

import (
	"context"
	"io"
	"log"
	"net"
	"sync"

	"cubesandbox/guest/agentapi"
)

// Limits of open connections, by where they come from: programs inside must not
// be able to keep the server out.
const (
	maxOutside = 4096
	maxInside  = 256
)

// connections knows every open connection of the agent's ports.
type connections struct {
	mu     sync.Mutex // guards all below
	open   map[*conn]struct{}
	inside int
}

func newConnections() *connections { return &connections{open: make(map[*conn]struct{})} }

// conn is a tracked connection.
type conn struct {
	*net.TCPConn
	of     *connections
	inside bool
	once   sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() { c.of.forget(c) })
	return c.TCPConn.Close()
}

// reset closes without a goodbye: the peer is in another life.
func (c *conn) reset() {
	c.SetLinger(0)
	c.Close()
}

func (cs *connections) add(c *conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.inside && cs.inside >= maxInside || len(cs.open)-cs.inside >= maxOutside {
		return false
	}
	cs.open[c] = struct{}{}
	if c.inside {
		cs.inside++
	}
	return true
}

func (cs *connections) forget(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, ok := cs.open[c]; ok {
		delete(cs.open, c)
		if c.inside {
			cs.inside--
		}
	}
}

// begin closes every connection from outside but the caller's: they are of an
// earlier life.
func (cs *connections) begin(caller net.Conn) {
	cs.close(func(c *conn) bool { return !c.inside && net.Conn(c) != caller })
}

// closeAll closes every connection but one.
func (cs *connections) closeAll(but net.Conn) {
	cs.close(func(c *conn) bool { return net.Conn(c) != but })
}

func (cs *connections) close(which func(*conn) bool) {
	cs.mu.Lock()
	var found []*conn
	for c := range cs.open {
		if which(c) {
			found = append(found, c)
		}
	}
	cs.mu.Unlock()
	for _, c := range found {
		c.reset()
	}
}

// tracked is a listener whose connections are known.
type tracked struct {
	net.Listener
	conns   *connections
	control bool // only the gateway may connect
}

func (l *tracked) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{TCPConn: raw.(*net.TCPConn), of: l.conns, inside: !fromGateway(raw)}
		if l.control && c.inside || !l.conns.add(c) {
			c.SetLinger(0)
			c.TCPConn.Close()
			continue
		}
		return c, nil
	}
}

// fromGateway reports whether the peer is the server's side of the NIC, an
// address that nothing inside can have.
func fromGateway(c net.Conn) bool {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	return ok && a.AddrPort().Addr().Unmap() == agentapi.Gateway
}

type connKey struct{}

func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// callerOf returns the connection that a request came over.
func callerOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}

// quiet takes net/http's complaints about peers: nobody reads them in here.
var quiet = log.New(io.Discard, "", 0)

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

// connections knows every open connection of the agent's ports and the
// generation that it belongs to.
type connections struct {
	mu         sync.Mutex // guards all below
	generation uint64
	open       map[*conn]struct{}
	inside     int
}

func newConnections() *connections { return &connections{open: make(map[*conn]struct{})} }

// conn is a tracked connection.
type conn struct {
	*net.TCPConn
	of         *connections
	generation uint64
	inside     bool
	once       sync.Once
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
	c.generation = cs.generation
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

// begin makes generation the current one and closes every connection from
// outside: they are of an earlier life, be its number the same. The caller's goes
// over.
func (cs *connections) begin(generation uint64, caller net.Conn) {
	cs.mu.Lock()
	cs.generation = generation
	var old []*conn
	for c := range cs.open {
		switch {
		case net.Conn(c) == caller:
			c.generation = generation
		case !c.inside:
			old = append(old, c)
		}
	}
	cs.mu.Unlock()
	for _, c := range old {
		c.reset()
	}
}

// closeAll closes every connection but one.
func (cs *connections) closeAll(but net.Conn) {
	cs.mu.Lock()
	var all []*conn
	for c := range cs.open {
		if net.Conn(c) != but {
			all = append(all, c)
		}
	}
	cs.mu.Unlock()
	for _, c := range all {
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

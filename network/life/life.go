// Package life is one running instance of a guest kernel as cube-network sees
// it: its NIC, the TCP/IP stack at our end of that, and the connections that were
// dialed into it.
package life

import (
	"context"
	"fmt"
	"os"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"cubesandbox/network/api"
	"cubesandbox/network/dns"
	"cubesandbox/network/link"
)

const (
	// MaxConnections to one guest, those included whose end the guest has not
	// acknowledged yet.
	MaxConnections = 1024
	// KeptForControl is how many more there may be to the agent's control port: whoever
	// takes all the others must not keep the server from its agent.
	KeptForControl = 16
)

// Life is one life. Safe for concurrent use.
type Life struct {
	nic   *link.Endpoint
	stack *stack.Stack

	ctx context.Context // ends, with the reason, when nothing can be dialed any more
	end context.CancelCauseFunc
	wg  sync.WaitGroup // reader, name server, connections, and dials under way

	mu    sync.Mutex // guards the following
	conns map[*conn]struct{}
	taken int // conns and dials under way
	dials uint64
	over  error // why there are no more connections, or nil
}

// Open plugs a NIC in, of which it takes a duplicate. It waits for nothing.
func Open(nic *os.File) (*Life, error) {
	ep, err := link.New(nic, dns.Answer)
	if err != nil {
		return nil, err
	}
	s, err := newStack(ep)
	if err != nil {
		ep.Shut()
		return nil, err
	}
	l := &Life{nic: ep, stack: s, conns: map[*conn]struct{}{}}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	names, err := l.listenNames()
	if err != nil {
		s.Destroy()
		ep.Shut()
		return nil, err
	}
	l.wg.Go(names.serve)
	l.wg.Go(l.read)
	return l, nil
}

// read is the reader of the NIC.
func (l *Life) read() {
	if err := l.nic.Serve(); err != nil {
		l.finish(fmt.Errorf("%w: %w", ErrUnreachable, err))
	}
}

// finish resets all connections and lets no more be made.
func (l *Life) finish(why error) {
	l.mu.Lock()
	if l.over == nil {
		l.over = why
	}
	for c := range l.conns {
		c.abort()
	}
	l.mu.Unlock()
	l.end(why)
}

// Close unplugs the NIC: all connections have been reset, at both of their ends,
// when it returns.
func (l *Life) Close() {
	l.finish(ErrClosed)
	l.nic.Stop()
	l.wg.Wait()
	l.stack.Destroy()
	l.nic.Shut()
}

// NIC is the life's descriptor. It stays the life's.
func (l *Life) NIC() *os.File { return l.nic.File() }

// FreezeEgress starts or ends the dropping of what the guest sends outside of
// connections that were dialed.
func (l *Life) FreezeEgress(frozen bool) { l.nic.FreezeEgress(frozen) }

// Stats returns what happened since Open.
func (l *Life) Stats() api.Stats {
	n := l.nic.Stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	return api.Stats{
		Up: l.over == nil, EgressFrozen: l.nic.EgressFrozen(),
		Connections: len(l.conns), Dials: l.dials,
		FramesIn: n.FramesIn, FramesOut: n.FramesOut, BytesIn: n.BytesIn, BytesOut: n.BytesOut,
		Rejected: n.Rejected, Held: n.Held, Dropped: n.Dropped, Names: n.Names,
	}
}

// admit takes a place for a connection and returns how many are taken now. The
// caller says l.wg.Done when its dial has ended.
func (l *Life) admit(control bool) (int, error) {
	most := MaxConnections
	if control {
		most += KeptForControl
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return 0, l.over
	}
	if l.taken >= most {
		return 0, ErrLimit
	}
	l.taken++
	l.wg.Add(1)
	return l.taken, nil
}

// release gives a place back.
func (l *Life) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
}

// add starts a connection, which keeps the place of its dial.
func (l *Life) add(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return l.over
	}
	l.conns[c] = struct{}{}
	l.dials++
	l.wg.Go(func() {
		c.run()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
		l.taken--
	})
	return nil
}

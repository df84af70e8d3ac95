package life

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"cubesandbox/network/dns"
)

const (
	// namesAtOnce is how many TCP connections to the name server a guest may have;
	// one more is reset.
	namesAtOnce = 16
	// namesPatience is how long one may take for one query.
	namesPatience = 5 * time.Second
	// namesEach is how many queries one connection may ask.
	namesEach = 64
	// namesQuery is the largest query, in bytes.
	namesQuery = 2048
)

// errNames ends a connection that asks for too much, or for nothing.
var errNames = errors.New("not an honest resolver")

// nameServer answers name queries over TCP, to whatever address they go. Those
// over UDP never reach the stack: see package link.
type nameServer struct {
	ep    tcpip.Endpoint
	wq    waiter.Queue
	entry waiter.Entry
	ready chan struct{}
	done  <-chan struct{}

	wg   sync.WaitGroup
	mu   sync.Mutex // guards open
	open map[tcpip.Endpoint]struct{}
}

func (l *Life) listenNames() (*nameServer, error) {
	n := &nameServer{done: l.ctx.Done(), open: map[tcpip.Endpoint]struct{}{}}
	ep, err := l.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &n.wq)
	if err != nil {
		return nil, fmt.Errorf("name server: %s", err)
	}
	n.ep = ep
	n.entry, n.ready = waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	n.wq.EventRegister(&n.entry)
	if err := ep.Bind(tcpip.FullAddress{NIC: nicID, Port: 53}); err != nil {
		return nil, fmt.Errorf("name server: bind: %s", err)
	}
	if err := ep.Listen(namesAtOnce); err != nil {
		return nil, fmt.Errorf("name server: listen: %s", err)
	}
	return n, nil
}

// serve accepts until the life is over, and leaves no connection behind.
func (n *nameServer) serve() {
	defer n.wg.Wait()
	for {
		ep, wq, err := n.ep.Accept(nil)
		switch err.(type) {
		case nil:
			n.start(ep, wq)
			continue
		case *tcpip.ErrWouldBlock:
		default:
			n.stop()
			return
		}
		select {
		case <-n.ready:
		case <-n.done:
			n.stop()
			return
		}
	}
}

func (n *nameServer) stop() {
	n.ep.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for ep := range n.open {
		ep.Abort()
	}
}

func (n *nameServer) start(ep tcpip.Endpoint, wq *waiter.Queue) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.open) == namesAtOnce {
		ep.Abort()
		return
	}
	n.open[ep] = struct{}{}
	n.wg.Go(func() {
		if answerNames(gonet.NewTCPConn(wq, ep)) != io.EOF {
			ep.Abort()
		}
		ep.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.open, ep)
	})
}

// answerNames answers the queries of one connection (RFC 1035, 4.2.2) until the
// guest ends it (io.EOF).
func answerNames(conn net.Conn) error {
	buf := make([]byte, namesQuery)
	for range namesEach {
		conn.SetDeadline(time.Now().Add(namesPatience))
		if _, err := io.ReadFull(conn, buf[:2]); err != nil {
			return err
		}
		size := int(binary.BigEndian.Uint16(buf))
		if size > len(buf) {
			return errNames
		}
		if _, err := io.ReadFull(conn, buf[:size]); err != nil {
			return err
		}
		a := dns.Answer(buf[:size])
		if a == nil {
			return errNames
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return err
		}
	}
	return errNames
}

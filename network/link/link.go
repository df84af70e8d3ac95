// Package link is our end of a sandbox's NIC, as gVisor's stack wants to see it.
//
// It differs from gVisor's own fdbased endpoint in four ways. Nothing that the
// guest sends reaches the stack before inspect has found it well-formed, unforged
// and of a kind that we speak; ARP and DNS are answered here and never reach it.
// An idle NIC holds neither a thread nor a buffer: the reader waits in Go's
// poller. A frame that does not fit into the guest's socket waits instead of
// being lost. And no frame can end the reader.
package link

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"cubesandbox/guest/agentapi"
)

// Endpoint is a stack.LinkEndpoint on a SOCK_SEQPACKET socket.
type Endpoint struct {
	file *os.File
	fd   int // of file; used for writing, under the queue's lock
	conn syscall.RawConn
	dns  func(query []byte) []byte

	frozen   atomic.Bool
	stopping atomic.Bool

	mu         sync.RWMutex // guards the following
	dispatcher stack.NetworkDispatcher

	out   queue
	stats counters
}

type counters struct {
	framesIn, framesOut, bytesIn, bytesOut, rejected, held, dropped, names atomic.Uint64
}

// Stats counts what passed since New.
type Stats struct {
	FramesIn, FramesOut, BytesIn, BytesOut, Rejected, Held, Dropped, Names uint64
}

// New makes an endpoint of our end of a NIC, of which it takes a duplicate. dns
// answers one DNS message, or nothing with nil; it is called by the reader.
func New(nic *os.File, dns func(query []byte) []byte) (*Endpoint, error) {
	fd, err := duplicate(nic)
	if err != nil {
		return nil, fmt.Errorf("NIC: %w", err)
	}
	f := os.NewFile(uintptr(fd), "nic")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("NIC: %w", err)
	}
	e := &Endpoint{file: f, fd: fd, conn: conn, dns: dns}
	e.out.e = e
	return e, nil
}

// duplicate also makes sure that it is what NewNIC made.
func duplicate(nic *os.File) (int, error) {
	raw, err := nic.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	cerr := raw.Control(func(n uintptr) {
		for _, o := range []struct{ name, want int }{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_SEQPACKET}, {unix.SO_ACCEPTCONN, 0}} {
			var v int
			if v, err = unix.GetsockoptInt(int(n), unix.SOL_SOCKET, o.name); err != nil {
				return
			}
			if v != o.want {
				err = fmt.Errorf("not an end of a SOCK_SEQPACKET socketpair: %w", unix.EINVAL)
				return
			}
		}
		if fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if cerr != nil {
		err = cerr
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, err
	}
	return fd, nil
}

// File is the NIC's descriptor. It stays the endpoint's.
func (e *Endpoint) File() *os.File { return e.file }

// FreezeEgress starts or ends the dropping of what is not part of a connection
// that was dialed from outside.
func (e *Endpoint) FreezeEgress(frozen bool) { e.frozen.Store(frozen) }

// EgressFrozen is what FreezeEgress last said.
func (e *Endpoint) EgressFrozen() bool { return e.frozen.Load() }

// Shut closes the descriptor. Frames that still come from the stack are dropped.
// Before: the reader has returned.
func (e *Endpoint) Shut() {
	e.out.close()
	e.file.Close()
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	c := &e.stats
	return Stats{c.framesIn.Load(), c.framesOut.Load(), c.bytesIn.Load(), c.bytesOut.Load(),
		c.rejected.Load(), c.held.Load(), c.dropped.Load(), c.names.Load()}
}

// The rest is stack.LinkEndpoint.

var gatewayMAC = tcpip.LinkAddress(agentapi.GatewayMAC[:])

// MTU implements stack.LinkEndpoint.
func (e *Endpoint) MTU() uint32 { return agentapi.MTU }

// SetMTU implements stack.LinkEndpoint. The MTU is fixed.
func (e *Endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (e *Endpoint) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (e *Endpoint) LinkAddress() tcpip.LinkAddress { return gatewayMAC }

// SetLinkAddress implements stack.LinkEndpoint. The address is fixed.
func (e *Endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint. No checksum is made or checked: the
// two ends share a kernel. No address is resolved: there is one neighbour.
func (e *Endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityTXChecksumOffload | stack.CapabilityRXChecksumOffload
}

// Attach implements stack.LinkEndpoint.
func (e *Endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (e *Endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// Wait implements stack.LinkEndpoint. The reader belongs to whoever calls Serve.
func (e *Endpoint) Wait() {}

// ARPHardwareType implements stack.LinkEndpoint.
func (e *Endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.LinkEndpoint.
func (e *Endpoint) AddHeader(pkt *stack.PacketBuffer) {
	copy(pkt.LinkHeader().Push(header.EthernetMinimumSize), ipv4Link[:])
}

// ParseHeader implements stack.LinkEndpoint.
func (e *Endpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// Close implements stack.LinkEndpoint. See Shut.
func (e *Endpoint) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (e *Endpoint) SetOnCloseAction(func()) {}

var _ stack.LinkEndpoint = (*Endpoint)(nil)

// Package networktest has a guest for tests: the stack that a sentry would have,
// configured as the keeper configures that, at the other end of a real NIC.
package networktest

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/loopback"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"cubesandbox/guest/agentapi"
	"cubesandbox/network"
)

// Guest is a fake guest kernel.
type Guest struct {
	Stack *stack.Stack
	link  stack.LinkEndpoint
	nic   *os.File
	// FD is the descriptor of the guest's end of the NIC.
	FD int
}

// NewLife returns a name for a life.
func NewLife() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// NewGuest starts a guest at one end of a NIC and returns the other. Both end
// with the test.
func NewGuest(t testing.TB) (*Guest, *os.File) {
	t.Helper()
	guestEnd, hostEnd, err := network.NewNIC()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hostEnd.Close() })
	// gVisor's reader spins when the last descriptor of the other end is closed.
	spare, err := duplicate(hostEnd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { spare.Close() })
	g, err := Start(guestEnd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g, hostEnd
}

// Start starts a guest kernel on a NIC, which becomes its own.
func Start(nic *os.File) (*Guest, error) {
	fd := int(nic.Fd())
	link, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: agentapi.MTU, EthernetHeader: true,
		Address:            tcpip.LinkAddress(agentapi.GuestMAC[:]),
		PacketDispatchMode: fdbased.RecvMMsg, TXChecksumOffload: true, RXChecksumOffload: true,
		ProcessorsPerChannel: 1,
	})
	if err != nil {
		return nil, err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
		HandleLocal:        true,
	})
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
	s.CreateNIC(1, link)
	s.CreateNIC(2, loopback.New())
	s.AddProtocolAddress(1, address(agentapi.Guest.Addr().As4(), agentapi.Guest.Bits()), stack.AddressProperties{})
	s.AddProtocolAddress(2, address([4]byte{127, 0, 0, 1}, 8), stack.AddressProperties{})
	s.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4LoopbackSubnet, NIC: 2},
		{Destination: header.IPv4EmptySubnet, Gateway: tcpip.AddrFrom4(agentapi.Gateway.As4()), NIC: 1},
	})
	return &Guest{Stack: s, link: link, nic: nic, FD: fd}, nil
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, derr := -1, error(nil)
	if err := raw.Control(func(n uintptr) { fd, derr = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), derr
}

func address(ip [4]byte, bits int) tcpip.ProtocolAddress {
	return tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(ip), PrefixLen: bits},
	}
}

// Stop ends the guest kernel and closes its end of the NIC. It may be called again.
func (g *Guest) Stop() {
	if g.Stack != nil {
		// The stack would wait for the link's reader with a lock held that this may
		// be waiting for.
		g.Stack.Close()
		g.link.Attach(nil)
		g.Stack.Destroy()
		g.Stack = nil
		g.nic.Close()
	}
}

// Listen listens on a TCP port of the guest's address, or, with loopback, of
// 127.0.0.1.
func (g *Guest) Listen(t testing.TB, port uint16, loopback bool) net.Listener {
	t.Helper()
	a := tcpip.FullAddress{Port: port}
	if loopback {
		a.Addr = tcpip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	l, err := gonet.ListenTCP(g.Stack, a, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Address is an IPv4 address and port as gVisor has it.
func Address(ip [4]byte, port uint16) *tcpip.FullAddress {
	return &tcpip.FullAddress{Addr: tcpip.AddrFrom4(ip), Port: port}
}

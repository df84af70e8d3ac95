package life

import (
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"cubesandbox/guest/agentapi"
)

const (
	nicID = 1

	// timeWait is how long the name of an ended connection stays taken. Nothing on
	// this link arrives late or twice, and a new life has a new stack.
	timeWait = time.Second

	// Sizes of TCP's buffers, in bytes; the default is what connections have that
	// the guest opens, which are name queries. See bufferFor.
	defaultBuffer = 128 << 10
	maxBuffer     = 2 << 20
)

var (
	guest   = tcpip.AddrFrom4(agentapi.Guest.Addr().As4())
	gateway = tcpip.AddrFrom4(agentapi.Gateway.As4())
)

// noRules is shared: a stack only looks at whether it has been changed.
var noRules = sync.OnceValue(func() *stack.IPTables {
	return stack.DefaultTables(tcpip.NewStdClock(), rand.New(source{}))
})

// source is the runtime's generator: safe for concurrent use, and without the
// 5 KB of state that each stack would otherwise have.
type source struct{}

func (source) Int63() int64 { return randv2.Int64() }
func (source) Seed(int64)   {}

// newStack makes the host's side of one link. It answers for every address, so
// that what the guest tries to reach is refused at once; it forwards nothing.
func newStack(nic stack.LinkEndpoint) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
		IPTables:           noRules(),
		RandSource:         source{},
	})
	if err := configure(s, nic); err != nil {
		s.Destroy()
		return nil, err
	}
	return s, nil
}

func configure(s *stack.Stack, nic stack.LinkEndpoint) error {
	sack := tcpip.TCPSACKEnabled(true)
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	fin := tcpip.TCPLingerTimeoutOption(linger)
	recv := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: defaultBuffer, Max: maxBuffer}
	snd := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: defaultBuffer, Max: maxBuffer}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &wait, &fin, &recv, &snd} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("stack: %T: %s", o, err)
		}
	}
	address := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: gateway, PrefixLen: agentapi.Guest.Bits()},
	}
	for name, err := range map[string]tcpip.Error{
		"NIC":     s.CreateNIC(nicID, nic),
		"address": s.AddProtocolAddress(nicID, address, stack.AddressProperties{}),
		"accept":  s.SetPromiscuousMode(nicID, true),
		"answer":  s.SetSpoofing(nicID, true),
	} {
		if err != nil {
			return fmt.Errorf("stack: %s: %s", name, err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	return nil
}

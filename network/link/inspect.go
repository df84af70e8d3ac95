package link

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"cubesandbox/guest/agentapi"
)

// verdict is what becomes of a frame from the guest.
type verdict int

const (
	reject  verdict = iota // malformed, forged, or a kind that we do not speak
	deliver                // to the stack
	arp                    // a request for our address
	dns                    // a UDP datagram to port 53 of anybody
)

const (
	linkLen  = header.EthernetMinimumSize
	ipv4Len  = header.IPv4MinimumSize
	udpLen   = header.UDPMinimumSize
	maxFrame = linkLen + agentapi.MTU
	arpLen   = header.ARPSize
	dnsPort  = 53

	etherIPv4 = 0x0800
	etherARP  = 0x0806
)

var (
	guestIP   = agentapi.Guest.Addr().As4()
	gatewayIP = agentapi.Gateway.As4()
	broadcast = [6]byte{255, 255, 255, 255, 255, 255}

	// ipv4Link is the link header of everything that we send but ARP.
	ipv4Link = linkHeader(etherIPv4)
	arpLink  = linkHeader(etherARP)
)

func linkHeader(kind uint16) (h [linkLen]byte) {
	copy(h[0:], agentapi.GuestMAC[:])
	copy(h[6:], agentapi.GatewayMAC[:])
	binary.BigEndian.PutUint16(h[12:], kind)
	return h
}

// inspect judges a frame and returns it without padding. Each field that the
// stack will rely on is checked here; fragments and IP options, of which no
// honest guest has need on this link, are rejected, and so is everything that the
// guest sends when its egress is frozen and that no dialed connection explains.
func inspect(f []byte, frozen bool) ([]byte, verdict) {
	if len(f) < linkLen || len(f) > maxFrame || [6]byte(f[6:12]) != agentapi.GuestMAC {
		return nil, reject
	}
	toUs := [6]byte(f[0:6]) == agentapi.GatewayMAC
	switch binary.BigEndian.Uint16(f[12:]) {
	case etherARP:
		if (toUs || [6]byte(f[0:6]) == broadcast) && isARPRequest(f[linkLen:]) {
			return f, arp
		}
	case etherIPv4:
		if toUs {
			return inspectIPv4(f, frozen)
		}
	}
	return nil, reject
}

func isARPRequest(b []byte) bool {
	return len(b) >= arpLen && header.ARP(b[:arpLen]).IsValid() &&
		header.ARP(b).Op() == header.ARPRequest &&
		[6]byte(header.ARP(b).HardwareAddressSender()) == agentapi.GuestMAC &&
		[4]byte(header.ARP(b).ProtocolAddressSender()) == guestIP &&
		[4]byte(header.ARP(b).ProtocolAddressTarget()) == gatewayIP
}

func inspectIPv4(f []byte, frozen bool) ([]byte, verdict) {
	b := f[linkLen:]
	if len(b) < ipv4Len || b[0] != 4<<4|ipv4Len/4 {
		return nil, reject
	}
	h := header.IPv4(b)
	total := int(h.TotalLength())
	if total < ipv4Len || total > len(b) || h.More() || h.FragmentOffset() != 0 ||
		[4]byte(h.SourceAddressSlice()) != guestIP || !destination([4]byte(h.DestinationAddressSlice())) {
		return nil, reject
	}
	f = f[:linkLen+total]
	toGateway := [4]byte(h.DestinationAddressSlice()) == gatewayIP
	switch payload := b[ipv4Len:total]; h.Protocol() {
	case uint8(header.TCPProtocolNumber):
		return f, inspectTCP(payload, frozen, toGateway)
	case uint8(header.UDPProtocolNumber):
		return f, inspectUDP(payload, frozen)
	case uint8(header.ICMPv4ProtocolNumber):
		if len(payload) >= header.ICMPv4MinimumSize && payload[0] == byte(header.ICMPv4Echo) && toGateway && !frozen {
			return f, deliver
		}
	}
	return nil, reject
}

// destination reports whether an address may be answered for: one host's, and
// not the guest's own. Nothing is forwarded there; the answer is a refusal.
func destination(ip [4]byte) bool {
	a := netip.AddrFrom4(ip)
	return ip != guestIP && ip != [4]byte{255, 255, 255, 255} &&
		!a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified()
}

func inspectTCP(b []byte, frozen, toGateway bool) verdict {
	if len(b) < header.TCPMinimumSize {
		return reject
	}
	t := header.TCP(b)
	if off := int(t.DataOffset()); off < header.TCPMinimumSize || off > len(b) {
		return reject
	}
	if frozen {
		opens := t.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) == header.TCPFlagSyn
		if opens || !toGateway || t.DestinationPort() == dnsPort {
			return reject
		}
	}
	return deliver
}

func inspectUDP(b []byte, frozen bool) verdict {
	if len(b) < udpLen || frozen {
		return reject
	}
	u := header.UDP(b)
	if n := int(u.Length()); n < udpLen || n > len(b) {
		return reject
	}
	if u.DestinationPort() == dnsPort {
		return dns
	}
	return deliver
}

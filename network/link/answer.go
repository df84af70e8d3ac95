package link

import (
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"cubesandbox/guest/agentapi"
)

// arpReply answers an ARP request that inspect let through.
func arpReply() []byte {
	f := make([]byte, linkLen+arpLen)
	copy(f, arpLink[:])
	a := header.ARP(f[linkLen:])
	a.SetIPv4OverEthernet()
	a.SetOp(header.ARPReply)
	copy(a.HardwareAddressSender(), agentapi.GatewayMAC[:])
	copy(a.ProtocolAddressSender(), gatewayIP[:])
	copy(a.HardwareAddressTarget(), agentapi.GuestMAC[:])
	copy(a.ProtocolAddressTarget(), guestIP[:])
	return f
}

// datagram wraps the answer to a UDP datagram that inspect let through: it comes
// from wherever that one went.
func datagram(request, payload []byte) []byte {
	in := request[linkLen:]
	n := ipv4Len + udpLen + len(payload)
	f := make([]byte, linkLen+n)
	copy(f, ipv4Link[:])
	ip := header.IPv4(f[linkLen:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(n),
		Flags:       header.IPv4FlagDontFragment,
		TTL:         64,
		Protocol:    uint8(header.UDPProtocolNumber),
		SrcAddr:     header.IPv4(in).DestinationAddress(),
		DstAddr:     header.IPv4(in).SourceAddress(),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	// A UDP checksum of zero means that there is none.
	header.UDP(f[linkLen+ipv4Len:]).Encode(&header.UDPFields{
		SrcPort: dnsPort,
		DstPort: header.UDP(in[ipv4Len:]).SourcePort(),
		Length:  uint16(udpLen + len(payload)),
	})
	copy(f[linkLen+ipv4Len+udpLen:], payload)
	return f
}

// payload is what a UDP datagram that inspect let through carries.
func payload(f []byte) []byte {
	u := f[linkLen+ipv4Len:]
	return u[udpLen:header.UDP(u).Length()]
}

package link

import (
	"bytes"
	"encoding/binary"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"cubesandbox/guest/agentapi"
)

// frame makes an IPv4 frame from the guest to ip.
func frame(ip [4]byte, protocol byte, payload []byte) []byte {
	f := make([]byte, linkLen+ipv4Len, linkLen+ipv4Len+len(payload))
	copy(f[0:], agentapi.GatewayMAC[:])
	copy(f[6:], agentapi.GuestMAC[:])
	binary.BigEndian.PutUint16(f[12:], etherIPv4)
	b := f[linkLen:]
	b[0], b[8], b[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(ipv4Len+len(payload)))
	copy(b[12:], guestIP[:])
	copy(b[16:], ip[:])
	return append(f, payload...)
}

func tcpTo(ip [4]byte, port uint16, flags header.TCPFlags) []byte {
	b := make([]byte, header.TCPMinimumSize)
	header.TCP(b).Encode(&header.TCPFields{SrcPort: 8000, DstPort: port, DataOffset: header.TCPMinimumSize, Flags: flags})
	return frame(ip, 6, b)
}

func udpTo(ip [4]byte, port uint16, payload string) []byte {
	b := append(make([]byte, udpLen), payload...)
	header.UDP(b).Encode(&header.UDPFields{SrcPort: 5000, DstPort: port, Length: uint16(len(b))})
	return frame(ip, 17, b)
}

func arpFor(ip [4]byte) []byte {
	f := make([]byte, linkLen+arpLen)
	copy(f[0:], broadcast[:])
	copy(f[6:], agentapi.GuestMAC[:])
	binary.BigEndian.PutUint16(f[12:], etherARP)
	a := header.ARP(f[linkLen:])
	a.SetIPv4OverEthernet()
	a.SetOp(header.ARPRequest)
	copy(a.HardwareAddressSender(), agentapi.GuestMAC[:])
	copy(a.ProtocolAddressSender(), guestIP[:])
	copy(a.ProtocolAddressTarget(), ip[:])
	return f
}

func with(f []byte, at int, b ...byte) []byte {
	f = bytes.Clone(f)
	copy(f[at:], b)
	return f
}

const ip = linkLen // offset of the IPv4 header

var (
	elsewhere = [4]byte{8, 8, 8, 8}
	metadata  = [4]byte{169, 254, 169, 254}
	syn       = tcpTo(gatewayIP, 80, header.TCPFlagSyn)
	ack       = tcpTo(gatewayIP, 80, header.TCPFlagAck)
	query     = udpTo(gatewayIP, 53, "0123456789ab")
	ping      = frame(gatewayIP, 1, []byte{8, 0, 0, 0, 0, 0, 0, 0})
)

func TestFramesAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		frame        []byte
		open, frozen verdict
	}{
		"segment of a connection":   {ack, deliver, deliver},
		"SYN and ACK":               {tcpTo(gatewayIP, 80, header.TCPFlagSyn|header.TCPFlagAck), deliver, deliver},
		"new connection":            {syn, deliver, reject},
		"segment to the name port":  {tcpTo(gatewayIP, 53, header.TCPFlagAck), deliver, reject},
		"segment to elsewhere":      {tcpTo(elsewhere, 80, header.TCPFlagAck), deliver, reject},
		"SYN to the metadata host":  {tcpTo(metadata, 80, header.TCPFlagSyn), deliver, reject},
		"datagram":                  {udpTo(elsewhere, 123, "x"), deliver, reject},
		"name query":                {query, dns, reject},
		"name query elsewhere":      {udpTo(elsewhere, 53, "x"), dns, reject},
		"ping":                      {ping, deliver, reject},
		"ping elsewhere":            {with(ping, ip+16, 1, 1, 1, 1), reject, reject},
		"ICMP redirect":             {with(ping, ip+ipv4Len, 5), reject, reject},
		"ARP for the gateway":       {arpFor(gatewayIP), arp, arp},
		"ARP for another":           {arpFor(elsewhere), reject, reject},
		"ARP that claims us":        {with(arpFor(gatewayIP), linkLen+14, gatewayIP[:]...), reject, reject},
		"ARP with another MAC":      {with(arpFor(gatewayIP), linkLen+8, 9), reject, reject},
		"ARP reply":                 {with(arpFor(gatewayIP), linkLen+7, 2), reject, reject},
		"short ARP":                 {arpFor(gatewayIP)[:linkLen+arpLen-1], reject, reject},
		"forged source MAC":         {with(ack, 6, 2, 0, 0, 0, 0, 9), reject, reject},
		"forged source address":     {with(ack, ip+12, 10, 0, 0, 1), reject, reject},
		"our own address as source": {with(ack, ip+12, gatewayIP[:]...), reject, reject},
		"to another MAC":            {with(ack, 0, 2, 0, 0, 0, 0, 9), reject, reject},
		"IPv4 by broadcast":         {with(ack, 0, broadcast[:]...), reject, reject},
		"IPv6":                      {with(ack, 12, 0x86, 0xdd), reject, reject},
		"version 6":                 {with(ack, ip, 0x65), reject, reject},
		"IP options":                {with(ack, ip, 0x46), reject, reject},
		"header of no length":       {with(ack, ip, 0x40), reject, reject},
		"first fragment":            {with(ack, ip+6, 0x20, 0), reject, reject},
		"later fragment":            {with(ack, ip+6, 0, 1), reject, reject},
		"length beyond the frame":   {with(ack, ip+2, 0xff, 0xff), reject, reject},
		"length below the header":   {with(ack, ip+2, 0, 19), reject, reject},
		"short TCP header":          {with(ack, ip+2, 0, 39), reject, reject},
		"TCP offset too small":      {with(ack, ip+32, 0x40), reject, reject},
		"TCP offset too large":      {with(ack, ip+32, 0xf0), reject, reject},
		"UDP length too small":      {with(query, ip+24, 0, 7), reject, reject},
		"UDP length too large":      {with(query, ip+24, 1, 0), reject, reject},
		"to the guest itself":       {with(syn, ip+16, guestIP[:]...), reject, reject},
		"to loopback":               {with(syn, ip+16, 127, 0, 0, 1), reject, reject},
		"to multicast":              {with(syn, ip+16, 224, 0, 0, 1), reject, reject},
		"to broadcast":              {with(syn, ip+16, 255, 255, 255, 255), reject, reject},
		"to nobody":                 {with(syn, ip+16, 0, 0, 0, 0), reject, reject},
		"another protocol":          {with(ack, ip+9, 132), reject, reject},
		"nothing":                   {nil, reject, reject},
		"link header alone":         {ack[:linkLen], reject, reject},
		"too long":                  {append(bytes.Clone(ack), make([]byte, maxFrame)...), reject, reject},
	} {
		t.Run(name, func(t *testing.T) {
			for frozen, want := range map[bool]verdict{false: c.open, true: c.frozen} {
				if _, got := inspect(c.frame, frozen); got != want {
					t.Errorf("frozen %v: got verdict %d, want %d", frozen, got, want)
				}
			}
		})
	}
}

func TestPaddingIsCutOff(t *testing.T) {
	f, v := inspect(append(bytes.Clone(ack), "padding"...), false)
	if v != deliver || !bytes.Equal(f, ack) {
		t.Errorf("got %x, verdict %d, want %x", f, v, ack)
	}
}

func TestAnswersAreWellFormed(t *testing.T) {
	f := datagram(query, []byte("answer"))
	h := header.IPv4(f[linkLen:])
	if !h.IsValid(len(f)-linkLen) || !h.IsChecksumValid() || [4]byte(h.SourceAddressSlice()) != gatewayIP || [4]byte(h.DestinationAddressSlice()) != guestIP {
		t.Errorf("got IPv4 header %x", f[linkLen:linkLen+ipv4Len])
	}
	u := header.UDP(f[linkLen+ipv4Len:])
	if u.SourcePort() != 53 || u.DestinationPort() != 5000 || string(u.Payload()) != "answer" || int(u.Length()) != len(u) {
		t.Errorf("got datagram %x", []byte(u))
	}
	if string(payload(query)) != "0123456789ab" {
		t.Errorf("got payload %q", payload(query))
	}
	a := header.ARP(arpReply()[linkLen:])
	if !a.IsValid() || a.Op() != header.ARPReply || [6]byte(a.HardwareAddressSender()) != agentapi.GatewayMAC || [4]byte(a.ProtocolAddressSender()) != gatewayIP {
		t.Errorf("got ARP %x", []byte(a))
	}
}

func FuzzInspect(f *testing.F) {
	for _, b := range [][]byte{syn, ack, query, ping, arpFor(gatewayIP)} {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, frozen bool) {
		got, v := inspect(b, frozen)
		if v == reject {
			return
		}
		if len(got) < linkLen || len(got) > len(b) || [6]byte(got[6:12]) != agentapi.GuestMAC {
			t.Fatalf("verdict %d for %x", v, got)
		}
		if v == arp {
			return
		}
		h := header.IPv4(got[linkLen:])
		if !h.IsValid(len(got)-linkLen) || h.HeaderLength() != ipv4Len || h.More() || h.FragmentOffset() != 0 || [4]byte(h.SourceAddressSlice()) != guestIP {
			t.Fatalf("verdict %d for %x", v, got)
		}
		if v == dns {
			payload(got)
			datagram(got, []byte("x"))
		}
	})
}

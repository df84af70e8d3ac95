package life

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"cubesandbox/guest/agentapi"
	"cubesandbox/network/networktest"
)

var (
	gatewayAddr = agentapi.Gateway.As4()
	strangers   = [][4]byte{gatewayAddr, {8, 8, 8, 8}, {169, 254, 169, 254}, {10, 0, 0, 1}, {192, 168, 1, 1}, {100, 64, 0, 1}, {172, 17, 0, 1}}
)

// soon is how long "at once" may take on a busy machine.
const soon = time.Second

func connectFrom(g *networktest.Guest, ip [4]byte, port uint16) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.Stack, *networktest.Address(ip, port), ipv4.ProtocolNumber)
}

func TestConnectingAnywhereIsRefusedAtOnce(t *testing.T) {
	_, g := plugged(t)
	for _, ip := range strangers {
		for _, port := range []uint16{22, 80, 443} {
			start := time.Now()
			c, err := connectFrom(g, ip, port)
			if err == nil {
				c.Close()
				t.Errorf("%v:%d: connected", ip, port)
			} else if !strings.Contains(err.Error(), "refused") || time.Since(start) > soon {
				t.Errorf("%v:%d: got %v after %v, want refused at once", ip, port, err, time.Since(start))
			}
		}
	}
}

func TestDatagramsAnywhereAreRefusedAtOnce(t *testing.T) {
	_, g := plugged(t)
	for _, ip := range strangers {
		if err, d := datagramError(t, g, ip); err == nil || d > soon {
			t.Errorf("%v: got %v after %v, want refused at once", ip, err, d)
		}
	}
}

// datagramError sends a datagram and returns what the guest's kernel then says
// of it: what recv would give.
func datagramError(t *testing.T, g *networktest.Guest, ip [4]byte) (tcpip.Error, time.Duration) {
	t.Helper()
	var wq waiter.Queue
	ep, err := g.Stack.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	entry, failed := waiter.NewChannelEntry(waiter.EventErr)
	wq.EventRegister(&entry)
	if err := ep.Connect(*networktest.Address(ip, 123)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := ep.Write(strings.NewReader("anybody?"), tcpip.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-failed:
		return ep.LastError(), time.Since(start)
	case <-time.After(5 * time.Second):
		return nil, time.Since(start)
	}
}

func nameQuery(t *testing.T) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName("example.com."), Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET})
	q, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func wantNXDOMAIN(t *testing.T, ip [4]byte, answer []byte) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil || m.RCode != dnsmessage.RCodeNameError || m.ID != 7 {
		t.Errorf("%v: got %v, %v, want NXDOMAIN", ip, m.Header, err)
	}
}

func TestNamesDoNotExistWhomeverIsAsked(t *testing.T) {
	l, g := plugged(t)
	q := nameQuery(t)
	for _, ip := range strangers {
		c, err := gonet.DialUDP(g.Stack, nil, networktest.Address(ip, 53), ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(soon))
		c.Write(q)
		b := make([]byte, 512)
		n, err := c.Read(b)
		if err != nil {
			t.Errorf("UDP to %v: %v", ip, err)
		}
		wantNXDOMAIN(t, ip, b[:n])
		c.Close()

		s, err := connectFrom(g, ip, 53)
		if err != nil {
			t.Fatalf("TCP to %v: %v", ip, err)
		}
		s.SetDeadline(time.Now().Add(soon))
		for range 2 {
			s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
			if _, err := io.ReadFull(s, b[:2]); err != nil {
				t.Fatalf("TCP to %v: %v", ip, err)
			}
			n := binary.BigEndian.Uint16(b)
			io.ReadFull(s, b[:n])
			wantNXDOMAIN(t, ip, b[:n])
		}
		s.Close()
	}
	if n := l.Stats().Names; n != uint64(len(strangers)) {
		t.Errorf("stats count %d names over UDP, want %d", n, len(strangers))
	}
}

func TestNameServerEndsWhoAsksForTooMuch(t *testing.T) {
	l, g := plugged(t)
	for name, send := range map[string][]byte{
		"too long":   {0xff, 0xff},
		"no query":   {0, 3, 1, 2, 3},
		"an answer":  append([]byte{0, 12}, 0, 7, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0),
		"zero bytes": {0, 0},
	} {
		c, err := connectFrom(g, gatewayAddr, 53)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(soon))
		c.Write(send)
		if n, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: got %d bytes, %v, want the end", name, n, err)
		}
		c.Close()
	}
	var open []*gonet.TCPConn
	refused := 0
	for range 2 * namesAtOnce {
		c, err := connectFrom(g, gatewayAddr, 53)
		if err != nil {
			refused++
			continue
		}
		open = append(open, c)
	}
	for _, c := range slices.Backward(open) { // the last came too late
		c.SetDeadline(time.Now().Add(soon))
		if _, err := c.Read(make([]byte, 1)); err != nil && !strings.Contains(err.Error(), "timeout") {
			refused++
		}
		if refused == namesAtOnce {
			break
		}
	}
	if refused < namesAtOnce {
		t.Errorf("%d of %d idle connections were ended, want %d", refused, 2*namesAtOnce, namesAtOnce)
	}
	l.Close() // must not wait for those that are left
	for _, c := range open {
		c.Close()
	}
}

func TestFrozenEgressKeepsWhatWasDialedAndStopsTheRest(t *testing.T) {
	l, g := plugged(t)
	client, server := connected(t, l, g)
	l.FreezeEgress(true)
	fmt.Fprint(server, "still here")
	b := make([]byte, 10)
	client.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(client, b); err != nil || string(b) != "still here" {
		t.Errorf("dialed connection: got %q, %v", b, err)
	}
	other, _ := connected(t, l, g) // and can still be dialed
	other.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if c, err := gonet.DialContextTCP(ctx, g.Stack, *networktest.Address(gatewayAddr, 53), ipv4.ProtocolNumber); err == nil {
		c.Close()
		t.Error("the guest has opened a connection")
	} else if ctx.Err() == nil {
		t.Errorf("got %v, want silence", err)
	}
	l.FreezeEgress(false)
	c, err := connectFrom(g, gatewayAddr, 53)
	if err != nil {
		t.Fatalf("thawed: %v", err)
	}
	c.Close()
}

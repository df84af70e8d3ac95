package link

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"cubesandbox/network"
)

// sink is a stack that keeps what is delivered.
type sink struct {
	stack.NetworkDispatcher
	got chan []byte
}

func (s *sink) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	s.got <- append(bytes.Clone(pkt.LinkHeader().Slice()), pkt.Data().AsRange().ToSlice()...)
}

// serving returns an endpoint whose reader runs, and the guest's end.
func serving(t *testing.T) (*Endpoint, *sink, *os.File, func() error) {
	t.Helper()
	guest, host, err := network.NewNIC()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	e, err := New(host, func(q []byte) []byte { return append([]byte("re: "), q...) })
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{got: make(chan []byte, 1000)}
	e.Attach(s)
	var wg sync.WaitGroup
	var served error
	wg.Go(func() { served = e.Serve() })
	t.Cleanup(func() { e.Stop(); wg.Wait(); e.Shut(); guest.Close() })
	return e, s, guest, func() error { wg.Wait(); return served }
}

func write(t *testing.T, f *os.File, b []byte) {
	t.Helper()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, f *os.File) []byte {
	t.Helper()
	f.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, maxFrame)
	n, err := f.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestNoFrameEndsTheReader(t *testing.T) {
	e, s, guest, _ := serving(t)
	bad := [][]byte{{0}, make([]byte, 13), make([]byte, 64), bytes.Repeat([]byte{0xff}, maxFrame), make([]byte, maxFrame+1), with(ack, 6, 9, 9)}
	for _, b := range bad {
		write(t, guest, b)
	}
	raw, _ := guest.SyscallConn()
	raw.Control(func(fd uintptr) { unix.SendmsgN(int(fd), nil, nil, nil, 0) })
	write(t, guest, ack)
	if got := <-s.got; !bytes.Equal(got, ack) {
		t.Errorf("got %x, want %x", got, ack)
	}
	if st := e.Stats(); st.Rejected != uint64(len(bad)+1) || st.FramesIn != uint64(len(bad)+2) {
		t.Errorf("got %+v, want %d rejected", st, len(bad)+1)
	}
}

func TestLargeFramesArriveWhole(t *testing.T) {
	_, s, guest, _ := serving(t)
	for _, n := range []int{small - 100, small + 100, maxFrame - linkLen - ipv4Len - 20} {
		payload := make([]byte, 20+n)
		copy(payload, ack[linkLen+ipv4Len:])
		for i := range payload[20:] {
			payload[20+i] = byte(i * 7)
		}
		f := frame(gatewayIP, 6, payload)
		write(t, guest, f)
		if got := <-s.got; !bytes.Equal(got, f) {
			t.Errorf("frame of %d bytes: got %d bytes, or others", len(f), len(got))
		}
	}
}

func TestARPAndNamesAreAnsweredWithoutTheStack(t *testing.T) {
	e, s, guest, _ := serving(t)
	write(t, guest, arpFor(gatewayIP))
	if got := read(t, guest); !bytes.Equal(got, arpReply()) {
		t.Errorf("got %x, want %x", got, arpReply())
	}
	q := udpTo(elsewhere, 53, "name?")
	write(t, guest, q)
	if got := read(t, guest); !bytes.Equal(got, datagram(q, []byte("re: name?"))) {
		t.Errorf("got %x", got)
	}
	if len(s.got) != 0 || e.Stats().Names != 1 {
		t.Errorf("the stack got %d packets; stats %+v", len(s.got), e.Stats())
	}
}

func TestFramesWaitForAFullSocketInOrder(t *testing.T) {
	e, _, guest, _ := serving(t)
	const size = 60_000
	sent := 0
	for ; e.Stats().Dropped == 0; sent++ {
		f := make([]byte, size)
		f[0], f[1] = byte(sent>>8), byte(sent)
		e.send(f)
	}
	sent-- // the last was dropped
	st := e.Stats()
	if st.Held == 0 || st.Held > maxHeld/size+1 {
		t.Errorf("got %d frames held of %d, want some and at most %d", st.Held, sent, maxHeld/size)
	}
	for i := range sent {
		if b := read(t, guest); len(b) != size || int(b[0])<<8|int(b[1]) != i {
			t.Fatalf("frame %d: got number %d of %d bytes", i, int(b[0])<<8|int(b[1]), len(b))
		}
	}
	e.send(arpReply())
	if got := read(t, guest); !bytes.Equal(got, arpReply()) {
		t.Errorf("afterwards: got %d bytes", len(got))
	}
}

func TestStopEndsTheReaderAndTheGuestsDeathIsToldApart(t *testing.T) {
	e, _, _, wait := serving(t)
	e.Stop()
	if err := wait(); err != nil {
		t.Errorf("stopped: got %v, want nil", err)
	}
	for what, end := range map[string]func(*os.File){
		"closed": func(f *os.File) { f.Close() },
		"shut down": func(f *os.File) {
			raw, _ := f.SyscallConn()
			raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
		},
	} {
		_, _, guest, wait := serving(t)
		end(guest)
		if err := wait(); !errors.Is(err, ErrGone) {
			t.Errorf("guest's end %s: got %v, want ErrGone", what, err)
		}
	}
}

func TestShutDropsWhatIsHeld(t *testing.T) {
	e, _, _, _ := serving(t)
	for e.Stats().Held < 3 {
		e.send(make([]byte, 60_000))
	}
	e.Stop()
	e.Shut()
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(make([]byte, 100))})
	defer pkt.DecRef()
	if e.out.put(pkt) {
		t.Error("a frame was taken after the end")
	}
}

func TestOnlyANICIsTaken(t *testing.T) {
	for kind, domain := range map[int]int{unix.SOCK_STREAM: unix.AF_UNIX, unix.SOCK_DGRAM: unix.AF_UNIX} {
		fds, err := unix.Socketpair(domain, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			f := os.NewFile(uintptr(fd), "pair")
			defer f.Close()
			if e, err := New(f, nil); err == nil {
				e.Shut()
				t.Errorf("socket of type %d was taken", kind)
			}
		}
	}
}

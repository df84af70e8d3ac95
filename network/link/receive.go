package link

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// ErrGone is what Serve returns when the guest's end has been closed.
var ErrGone = errors.New("the guest's end of the NIC is closed")

const (
	// small frames are copied, so that their memory is not that of large ones.
	small = 16 << 10
	// turn is how many frames a NIC may have read before others get their turn,
	// which lasts for pause.
	turn  = 64
	pause = 50 * time.Microsecond
)

// Serve reads frames until Stop (nil) or until the guest's end is closed
// (ErrGone). It is called once.
func (e *Endpoint) Serve() error {
	r := reader{e: e}
	err := e.conn.Read(func(fd uintptr) bool { return r.drain(int(fd)) })
	if errors.Is(err, os.ErrDeadlineExceeded) || e.stopping.Load() {
		return nil
	}
	if err != nil {
		return err
	}
	return r.err
}

// Stop makes Serve return.
func (e *Endpoint) Stop() {
	e.stopping.Store(true)
	e.file.SetReadDeadline(time.Unix(1, 0))
}

type reader struct {
	e   *Endpoint
	buf *buffer.View // held only while there is something to read
	err error
}

// drain reads until nothing is left (false: wait for more) or until it has to
// end (true).
func (r *reader) drain(fd int) bool {
	defer r.release()
	for n := 1; !r.e.stopping.Load(); n++ {
		if r.buf == nil {
			r.buf = buffer.NewViewSize(buffer.MaxChunkSize)
		}
		size, err := unix.Read(fd, r.buf.AsSlice())
		switch {
		case err == unix.EAGAIN:
			return false
		case err == unix.EINTR:
			continue
		case err != nil || size == 0 && hungUp(fd):
			r.err = ErrGone
			return true
		}
		r.frame(size)
		if n%turn == 0 {
			// waits for nothing: a guest that floods must not keep the others from
			// being heard. Runtime.Gosched would: Go asks for news of descriptors only
			// when no goroutine can run.
			time.Sleep(pause)
		}
	}
	return true
}

// hungUp tells the end of the other side from an empty frame.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := unix.Ppoll(p, &unix.Timespec{}, nil)
	return err != nil || p[0].Revents&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR) != 0
}

func (r *reader) release() {
	if r.buf != nil {
		r.buf.Release()
		r.buf = nil
	}
}

func (r *reader) frame(size int) {
	e := r.e
	e.stats.framesIn.Add(1)
	e.stats.bytesIn.Add(uint64(size))
	f, v := inspect(r.buf.AsSlice()[:size], e.frozen.Load())
	switch v {
	case deliver:
		e.deliver(r.take(len(f)))
	case arp:
		e.send(arpReply())
	case dns:
		e.stats.names.Add(1)
		if a := e.dns(payload(f)); a != nil {
			e.send(datagram(f, a))
		}
	default:
		e.stats.rejected.Add(1)
	}
}

// take returns the first n bytes of the buffer as a view of their own.
func (r *reader) take(n int) *buffer.View {
	if n <= small {
		return buffer.NewViewWithData(r.buf.AsSlice()[:n])
	}
	v := r.buf
	v.CapLength(n)
	r.buf = nil
	return v
}

func (e *Endpoint) deliver(v *buffer.View) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(v)})
	defer pkt.DecRef()
	pkt.LinkHeader().Consume(linkLen)
	pkt.NetworkProtocolNumber = header.IPv4ProtocolNumber
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(header.IPv4ProtocolNumber, pkt)
	}
}

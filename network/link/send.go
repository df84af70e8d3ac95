package link

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/rawfile"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// maxHeld bounds, in bytes, what may wait for the guest's socket to have room. It
// costs little: TCP's send buffers hold the same bytes until they are acknowledged.
const maxHeld = 32 << 20

// WritePackets implements stack.LinkWriter.
func (e *Endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range pkts.AsSlice() {
		if !e.out.put(pkt) {
			return i, &tcpip.ErrNoBufferSpace{}
		}
	}
	return pkts.Len(), nil
}

// send sends a frame of our own making.
func (e *Endpoint) send(f []byte) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(f)})
	defer pkt.DecRef()
	e.out.put(pkt)
}

// queue keeps frames in order while the socket has no room. Its flusher lives
// only as long as something waits.
type queue struct {
	e *Endpoint

	mu     sync.Mutex // guards the following, and is held while writing
	frames []*stack.PacketBuffer
	bytes  int
	closed bool

	flusher sync.WaitGroup
}

// put sends a frame, or holds it. False: it was dropped.
func (q *queue) put(pkt *stack.PacketBuffer) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	size := pkt.Size()
	if len(q.frames) == 0 && q.try(pkt) {
		return true
	}
	if q.bytes+size > maxHeld {
		q.e.stats.dropped.Add(1)
		return false
	}
	q.e.stats.held.Add(1)
	q.frames = append(q.frames, pkt.IncRef())
	q.bytes += size
	if len(q.frames) == 1 {
		q.flusher.Go(q.flush)
	}
	return true
}

// flush writes what is held whenever there is room, until nothing is.
func (q *queue) flush() {
	q.e.conn.Write(func(uintptr) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		done := 0
		for done < len(q.frames) && !q.closed && q.try(q.frames[done]) {
			q.bytes -= q.frames[done].Size()
			q.frames[done].DecRef()
			q.frames[done] = nil
			done++
		}
		q.frames = q.frames[done:]
		if len(q.frames) == 0 {
			q.frames = nil
		}
		return q.closed || len(q.frames) == 0
	})
}

// close drops what is held and waits for the flusher.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	for _, pkt := range q.frames {
		pkt.DecRef()
	}
	q.frames, q.bytes = nil, 0
	q.mu.Unlock()
	q.e.file.SetWriteDeadline(time.Unix(1, 0))
	q.flusher.Wait()
}

// try writes one frame; false means that there is no room now. What fails in
// another way (the guest has gone) is gone.
func (q *queue) try(pkt *stack.PacketBuffer) bool {
	var arr [8]unix.Iovec
	iov := arr[:0]
	for _, s := range pkt.AsSlices() {
		iov = rawfile.AppendIovecFromBytes(iov, s, rawfile.MaxIovs)
	}
	for {
		switch errno := rawfile.NonBlockingWriteIovec(q.e.fd, iov); errno {
		case unix.EAGAIN:
			return false
		case unix.EINTR:
			continue
		case 0:
			q.e.stats.framesOut.Add(1)
			q.e.stats.bytesOut.Add(uint64(pkt.Size()))
		}
		return true
	}
}

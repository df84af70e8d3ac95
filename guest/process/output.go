package process

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stream is which output of a process bytes came from.
type stream uint8

const (
	stdout stream = iota
	stderr
	terminal
)

const (
	// maxOutput is how much output of one process is kept for readers, in bytes.
	maxOutput = 1 << 20
	// chunkStd and chunkPTY are the most that one event carries, in bytes.
	chunkStd = 32 << 10
	chunkPTY = 16 << 10
	// stall is how long a reader that takes nothing may hold up a process
	// before it loses output.
	stall = 10 * time.Second
)

// output is what a process has written and not everybody has read: at most max
// bytes. Readers that keep up get all of it: when it is full the process waits
// for them, as it would for a full pipe. A reader that takes nothing for longer
// than stall loses the oldest output and is told so. Without readers the newest
// output is kept, and the first reader that comes gets it.
type output struct {
	max   int
	stall time.Duration

	mu      sync.Mutex // guards all below
	chunks  []chunk
	first   int64 // number of chunks[0]
	size    int   // bytes in chunks
	unread  int64 // number of the first chunk that no reader has been given
	lost    int   // bytes dropped while there was no reader
	readers map[*reader]struct{}
	waiting int           // writers in wait
	space   chan struct{} // closed and replaced when a reader has made progress
	ended   bool
}

type chunk struct {
	stream stream
	data   []byte
	taken  bool // a reader holds data: it must not grow
}

// reader is one reader of an output. Only its owner calls next.
type reader struct {
	next  int64 // number of the next chunk
	lost  int   // bytes dropped since the last event
	late  bool  // it has stalled: nobody waits for it until it has caught up
	ready chan struct{}
}

func newOutput(max int, stall time.Duration) *output {
	return &output{max: max, stall: stall, readers: make(map[*reader]struct{}), space: make(chan struct{})}
}

// subscribe adds a reader. The first gets what nobody has read yet; while there
// are others, it gets what comes from now on.
func (o *output) subscribe() *reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &reader{ready: make(chan struct{}, 1), next: o.first + int64(len(o.chunks))}
	if len(o.readers) == 0 {
		r.next = max(o.unread, o.first)
		r.lost, o.lost = o.lost, 0
	}
	o.readers[r] = struct{}{}
	signal(r.ready)
	return r
}

func (o *output) unsubscribe(r *reader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.readers, r)
	o.forget()
	o.progress()
}

func (o *output) progress() {
	if o.waiting > 0 {
		close(o.space)
		o.space = make(chan struct{})
	}
}

// write adds bytes, which it copies. It waits for slow readers, but not for ever.
func (o *output) write(s stream, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.readers) > 0 && o.size+len(data) > o.max {
		o.wait(len(data))
	}
	o.append(s, data)
	for o.size > o.max && len(o.chunks) > 1 {
		o.drop()
	}
	for r := range o.readers {
		signal(r.ready)
	}
}

// wait returns when n bytes fit, or when all that stand in the way are late.
// The caller holds mu, which is released meanwhile.
func (o *output) wait(n int) {
	timer := time.NewTimer(o.stall)
	defer timer.Stop()
	o.waiting++
	defer func() { o.waiting-- }()
	for o.size+n > o.max && o.anyPunctual() {
		slowest, space := o.slowest(), o.space
		o.mu.Unlock()
		expired := false
		select {
		case <-space:
		case <-timer.C:
			expired = true
		}
		o.mu.Lock()
		if now := o.slowest(); now > slowest {
			timer.Reset(o.stall) // progress
		} else if expired {
			for r := range o.readers {
				r.late = r.late || r.next == now
			}
			timer.Reset(o.stall)
		}
	}
}

func (o *output) anyPunctual() bool {
	for r := range o.readers {
		if !r.late && r.next < o.first+int64(len(o.chunks)) {
			return true
		}
	}
	return false
}

// slowest is the lowest number that a punctual reader still needs.
func (o *output) slowest() int64 {
	low := o.first + int64(len(o.chunks))
	for r := range o.readers {
		if !r.late {
			low = min(low, r.next)
		}
	}
	return low
}

func (o *output) append(s stream, data []byte) {
	limit := chunkStd
	if s == terminal {
		limit = chunkPTY
	}
	o.size += len(data)
	if n := len(o.chunks); n > 0 && len(data) > 0 {
		if last := &o.chunks[n-1]; last.stream == s && !last.taken && len(last.data)+len(data) <= limit {
			last.data = append(last.data, data...)
			return
		}
	}
	for len(data) > 0 {
		n := min(len(data), limit)
		o.chunks = append(o.chunks, chunk{stream: s, data: append([]byte(nil), data[:n]...)})
		data = data[n:]
	}
}

// drop forgets the oldest chunk and tells those who had not read it.
func (o *output) drop() {
	n := len(o.chunks[0].data)
	for r := range o.readers {
		if r.next == o.first {
			r.next++
			r.lost += n
		}
	}
	if len(o.readers) == 0 && o.unread <= o.first {
		o.lost += n
	}
	o.pop()
}

func (o *output) pop() {
	o.size -= len(o.chunks[0].data)
	o.chunks[0] = chunk{}
	o.chunks = o.chunks[1:]
	o.first++
	if len(o.chunks) == 0 {
		o.chunks = nil
	}
}

// forget pops what every reader has read; without readers, what one had read.
func (o *output) forget() {
	low := o.unread
	for r := range o.readers {
		low = min(low, r.next)
	}
	for len(o.chunks) > 0 && o.first < low {
		o.pop()
	}
}

// end says that nothing more will be written.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for r := range o.readers {
		signal(r.ready)
	}
}

// next returns the next bytes for r. It reports false when the output has ended
// and all was read, and fails when ctx ends. idle, if not nil, makes it return
// without bytes.
func (o *output) next(ctx context.Context, r *reader, idle <-chan time.Time) (s stream, data []byte, more bool, err error) {
	for {
		o.mu.Lock()
		if r.lost > 0 && r.next < o.first+int64(len(o.chunks)) {
			s := o.chunks[r.next-o.first].stream
			text := fmt.Appendf(nil, "\n[cube: %d bytes of output dropped: the reader was too slow]\n", r.lost)
			r.lost = 0
			o.mu.Unlock()
			return s, text, true, nil
		}
		if i := r.next - o.first; i < int64(len(o.chunks)) {
			c := &o.chunks[i]
			c.taken = true
			s, data = c.stream, c.data
			r.next++
			o.unread = max(o.unread, r.next)
			o.forget()
			r.late = r.late && r.next < o.first+int64(len(o.chunks))
			o.progress()
			o.mu.Unlock()
			return s, data, true, nil
		}
		ended := o.ended
		o.mu.Unlock()
		if ended {
			return 0, nil, false, nil
		}
		select {
		case <-r.ready:
		case <-idle:
			return 0, nil, true, nil
		case <-ctx.Done():
			return 0, nil, false, ctx.Err()
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

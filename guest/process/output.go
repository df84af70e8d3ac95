package process

import (
	"sync"
	"time"
)

const (
	// maxOutput is how much output of one process is kept, in bytes.
	maxOutput = 1 << 20
	// stall is how long a reader that takes nothing, or that is away, may hold up a
	// process before it loses output.
	stall = 60 * time.Second
	// maxAway bounds how many readers of one output are waited for though their streams
	// have broken.
	maxAway = 16
)

// output is what a process has written: its newest bytes, at most max, whether they were
// read or not. Each has an offset, counted over all streams in the order in which they
// were read from the process.
//
// Readers that keep up get all of it: when there is no room for more before one has read
// on the process waits, as it would for a full pipe. One that takes nothing for longer
// than stall loses the oldest output and is told so. One that can take its output up
// again is waited for as long when its stream has broken.
type output struct {
	max     int64
	stall   time.Duration
	history *history // bounds what all outputs keep of what was read; may be nil

	mu       sync.Mutex // guards all below
	blocks   []block    // some bytes before start may be left in the first
	start    int64      // offset of the oldest byte that is kept
	end      int64      // offset of the next byte
	unread   int64      // offset of the first byte that no reader was given
	counted  holding    // what history knows of
	last     time.Time  // when something was written or read
	forget   bool       // what was read is not kept any more
	readers  map[*reader]struct{}
	waiting  int           // writers in wait
	space    chan struct{} // closed and replaced when writers shall look again
	patience deadline      // when the next reader has stalled for too long
	ended    bool
	lineage  lineage
}

func newOutput(max int, stall time.Duration) *output {
	return &output{max: int64(max), stall: stall, readers: make(map[*reader]struct{}), space: make(chan struct{})}
}

// write adds bytes, which it copies. It waits for slow readers, but not for ever; and for
// none before it has written what there is room for: a reader with a window may want that
// before it says how far it has read.
func (o *output) write(s stream, data []byte) {
	o.mu.Lock()
	for len(data) > 0 {
		n := o.wait(min(int64(len(data)), blockSize))
		o.put(s, data[:n])
		data = data[n:]
		for r := range o.readers {
			signal(r.ready)
		}
	}
	o.account()
	o.mu.Unlock()
	o.history.bound()
}

func (o *output) put(s stream, data []byte) {
	o.last = time.Now()
	o.lineage.mark(o.last, o.end)
	if n := len(o.blocks); n == 0 || !o.blocks[n-1].add(s, data) {
		b := block{offset: o.end}
		if n > 0 {
			b.earlier = o.blocks[n-1].earlier + int64(len(o.blocks[n-1].runs))
		}
		b.add(s, data)
		o.blocks = append(o.blocks, b)
	}
	o.end += int64(len(data))
	o.dropTo(o.end - o.max)
}

// dropTo drops what lies before an offset.
func (o *output) dropTo(offset int64) {
	if offset <= o.start {
		return
	}
	o.start = min(offset, o.end)
	n := 0
	for n < len(o.blocks) && o.blocks[n].end() <= o.start {
		o.blocks[n] = block{}
		n++
	}
	if o.blocks = o.blocks[n:]; len(o.blocks) == 0 {
		o.blocks = nil
	}
}

// wait returns how many of n bytes fit, when it is some, or when all that stand in the way
// have had their time. The caller holds mu, which is released meanwhile.
func (o *output) wait(n int64) int64 {
	if o.room() > 0 {
		return min(n, o.room())
	}
	if o.waiting == 0 { // from now on they hold up somebody
		now := time.Now()
		for r := range o.readers {
			if r.connected {
				r.since = now
			}
		}
	}
	o.waiting++
	for o.room() <= 0 {
		space := o.space
		o.arm()
		o.mu.Unlock()
		<-space
		o.mu.Lock()
	}
	o.waiting--
	o.arm()
	return min(n, o.room())
}

// room is how many bytes can be written before they push out what somebody still needs.
func (o *output) room() int64 { return o.held() + o.max - o.end }

// held is the offset from which on something is kept for a reader; end when there is
// none to wait for.
func (o *output) held() int64 {
	away, connected := o.heldFor()
	return min(away, connected)
}

// heldFor is held for the readers that are away, and for those that are connected.
func (o *output) heldFor() (away, connected int64) {
	away, connected = o.end, o.end
	for r := range o.readers {
		switch at := max(r.hold(), o.start); {
		case r.late:
		case r.connected:
			connected = min(connected, at)
		default:
			away = min(away, at)
		}
	}
	return away, connected
}

// progress makes writers look again.
func (o *output) progress() {
	if o.waiting > 0 {
		close(o.space)
		o.space = make(chan struct{})
	}
}

// arm sets patience to the next moment at which a reader has stalled for too long. Nothing
// is set while nobody is away and no writer waits: a process that is silent costs nothing.
func (o *output) arm() {
	var at time.Time
	for r := range o.readers {
		if o.ended || r.late || r.connected && o.waiting == 0 {
			continue
		}
		if t := r.since.Add(o.stall); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	o.patience.set(time.Now(), at, o.lapse)
}

// lapse ends the patience with those that have stalled for too long.
func (o *output) lapse() {
	o.mu.Lock()
	now := time.Now()
	for r := range o.readers {
		switch {
		case r.since.Add(o.stall).After(now):
		case !r.connected:
			delete(o.readers, r)
		case o.waiting > 0 && r.hold() < o.end:
			r.late = true
		case o.waiting > 0:
			r.since = now // it has all: others are in the way
		}
	}
	o.account()
	o.progress()
	o.arm()
	o.mu.Unlock()
	o.history.bound()
}

// shift takes note that the sandbox was in an image for so long. Who has read since the
// restore has the time of now already.
func (o *output) shift(saved time.Time, by time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r := range o.readers {
		if !r.since.After(saved) {
			r.since = r.since.Add(by)
		}
	}
	o.arm()
}

// begin takes note that a life of the sandbox has begun from an image that was saved at
// that moment; zero: it is the first.
func (o *output) begin(generation uint64, saved time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lineage.begin(generation, saved, o.end)
}

// close says that nothing more will be written.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.arm()
	for r := range o.readers {
		signal(r.ready)
	}
}

// awaited is how long somebody who may take this output up again still has.
func (o *output) awaited() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var left time.Duration
	for r := range o.readers {
		if r.resumes {
			left = max(left, time.Until(r.since.Add(o.stall)))
		}
	}
	return left
}

// release keeps no more than what those need who read now: the process is not to be
// found any more.
func (o *output) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget = true
	for r := range o.readers {
		if !r.connected {
			delete(o.readers, r)
		}
	}
	o.patience.stop()
	o.account()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

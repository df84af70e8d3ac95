package process

import (
	"sync"
	"sync/atomic"
)

// Bounds of what is kept of all processes together, in bytes: it is memory of the agent,
// and in every image.
const (
	// maxHistory is for output that somebody has read.
	maxHistory = 8 << 20
	// maxLoose is for all that no reader is waited for, read or not.
	maxLoose = 64 << 20
)

// history is what all outputs keep that nobody is waited for. The outputs at which nothing
// has happened for the longest time lose it first. A nil one has no bound.
type history struct {
	outputs     func() []*output
	read, loose share
	mu          sync.Mutex // one at a time makes room
}

// share is a part of what is kept.
type share struct {
	max   int64
	total atomic.Int64 // bytes, of all outputs
}

func (s *share) over() bool { return s.total.Load() > s.max }

// holding is how much of each share an output keeps, in bytes.
type holding struct{ read, loose int64 }

// count takes note that an output keeps something else than before.
func (h *history) count(was, is holding) {
	if h != nil && is != was {
		h.read.total.Add(is.read - was.read)
		h.loose.total.Add(is.loose - was.loose)
	}
}

// bound makes room where a bound is passed. The caller holds no output.
func (h *history) bound() {
	if h == nil || !h.read.over() && !h.loose.over() || !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	for h.read.over() && h.trim(func(k holding) int64 { return k.read }) {
	}
	for h.loose.over() && h.trim(func(k holding) int64 { return k.loose }) {
	}
}

// trim drops what the oldest output has of a share. False: none has anything.
func (h *history) trim(of func(holding) int64) bool {
	var oldest *output
	var since int64
	for _, o := range h.outputs() {
		o.mu.Lock()
		n, last := of(o.counted), o.last.UnixNano()
		o.mu.Unlock()
		if n > 0 && (oldest == nil || last < since) {
			oldest, since = o, last
		}
	}
	if oldest != nil {
		oldest.trim(of)
	}
	return oldest != nil
}

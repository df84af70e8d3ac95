package process

import (
	"sync"
	"sync/atomic"
)

// maxHistory bounds what is kept of output that was read, of all processes together, in
// bytes: it is in every image.
const maxHistory = 8 << 20

// history is what all outputs keep though somebody has read it. The outputs at which
// nothing has happened for the longest time lose it first. A nil one has no bound.
type history struct {
	max     int64
	outputs func() []*output
	total   atomic.Int64 // bytes, of all outputs
	mu      sync.Mutex   // one at a time makes room
}

// bound makes room where the bound is passed. The caller holds no output.
func (h *history) bound() {
	if h == nil || h.total.Load() <= h.max || !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	for h.total.Load() > h.max {
		var oldest *output
		var since int64
		for _, o := range h.outputs() {
			o.mu.Lock()
			spare, last := o.counted, o.last.UnixNano()
			o.mu.Unlock()
			if spare > 0 && (oldest == nil || last < since) {
				oldest, since = o, last
			}
		}
		if oldest == nil {
			return
		}
		oldest.trim()
	}
}

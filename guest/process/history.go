package process

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what is kept of all processes together, in bytes of memory: it is the agent's,
// and in every image.
const (
	// maxHistory is for output that somebody has read.
	maxHistory = 8 << 20
	// maxLoose is for all that no reader is waited for, read or not.
	maxLoose = 64 << 20
	// maxHeld is for what readers are waited for that are away.
	maxHeld = 32 << 20
)

// history is what all outputs keep, but for what connected readers have still to take. The
// outputs at which nothing has happened for the longest time lose first what nobody is
// waited for, and the readers that are away for the longest time are given up first. A nil
// one has no bound.
type history struct {
	outputs           func() []*output
	read, loose, away share
	mu                sync.Mutex // one at a time makes room
}

// share is a part of what is kept.
type share struct {
	max   int64
	total atomic.Int64 // bytes, of all outputs
}

func (s *share) over() bool { return s.total.Load() > s.max }

// count takes note that an output keeps something else than before.
func (h *history) count(was, is holding) {
	if h != nil && is != was {
		h.read.total.Add(is.read - was.read)
		h.loose.total.Add(is.loose - was.loose)
		h.away.total.Add(is.away - was.away)
	}
}

// bound makes room where a bound is passed. The caller holds no output. What a reader was
// waited for that is given up may pass the bound of the loose, which is therefore the last.
func (h *history) bound() {
	if h == nil || !h.read.over() && !h.loose.over() && !h.away.over() || !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	for h.read.over() && h.shed(func(k holding) int64 { return k.read }, (*output).used, (*output).dropRead) {
	}
	for h.away.over() && h.shed(func(k holding) int64 { return k.away }, (*output).awaySince, (*output).giveUp) {
	}
	for h.loose.over() && h.shed(func(k holding) int64 { return k.loose }, (*output).used, (*output).dropLoose) {
	}
}

// shed makes the output drop something of a share that has some and is the oldest. False:
// none has any.
func (h *history) shed(of func(holding) int64, age func(*output) time.Time, drop func(*output)) bool {
	var oldest *output
	var since time.Time
	for _, o := range h.outputs() {
		o.mu.Lock()
		n, at := of(o.counted), age(o)
		o.mu.Unlock()
		if n > 0 && (oldest == nil || at.Before(since)) {
			oldest, since = o, at
		}
	}
	if oldest != nil {
		drop(oldest)
	}
	return oldest != nil
}

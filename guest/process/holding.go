package process

import (
	"slices"
	"time"
)

// holding is how much of each share an output keeps, in bytes. What was read is loose too.
type holding struct{ read, loose, away int64 }

// keeps is what is kept, but for what connected readers have still to take.
func (o *output) keeps() holding {
	away, connected := o.heldFor()
	held := min(away, connected)
	start := o.memory(o.start)
	return holding{
		read:  o.memory(max(min(held, o.unread), o.start)) - start,
		loose: o.memory(held) - start,
		away:  o.memory(connected) - o.memory(held),
	}
}

// memory is how much memory what is kept takes up to an offset, in bytes, from some zero on.
func (o *output) memory(offset int64) int64 {
	b := o.find(offset)
	if b != nil {
		return offset + segmentSize*(b.earlier+int64(b.run(offset)))
	}
	if n := len(o.blocks); n > 0 { // the end
		b = &o.blocks[n-1]
		return offset + segmentSize*(b.earlier+int64(len(b.runs)))
	}
	return offset
}

// account tells history what is kept.
func (o *output) account() {
	if o.forget {
		o.dropTo(o.held())
	}
	is := o.keeps()
	o.history.count(o.counted, is)
	o.counted = is
}

// dropRead drops what somebody has read and nobody is waited for.
func (o *output) dropRead() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropTo(min(o.held(), o.unread))
	o.account()
}

// dropLoose drops all that nobody is waited for.
func (o *output) dropLoose() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropTo(o.held())
	o.account()
}

// giveUp ends the patience with the reader that has been away for the longest time.
func (o *output) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _ := o.longestAway()
	delete(o.readers, r)
	o.account()
	o.progress()
	o.arm()
}

// used is when something was written or read. The caller holds mu, as for awaySince.
func (o *output) used() time.Time { return o.last }

// awaySince is since when its reader is away that is so for the longest time.
func (o *output) awaySince() time.Time {
	if r, _ := o.longestAway(); r != nil {
		return r.since
	}
	return time.Time{}
}

// find returns the block that holds the byte at an offset between start and end.
func (o *output) find(offset int64) *block {
	i, found := slices.BinarySearchFunc(o.blocks, offset, func(b block, at int64) int {
		switch {
		case at < b.offset:
			return 1
		case at >= b.end():
			return -1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &o.blocks[i]
}

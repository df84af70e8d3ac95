package process

import (
	"slices"
	"time"
)

// Begin says that a life of the sandbox has begun, from an image that was saved at that
// moment; zero: from none.
func (t *Table) Begin(generation uint64, saved time.Time) {
	t.mu.Lock()
	t.generation = generation
	t.mu.Unlock()
	for _, p := range t.known() {
		p.out.begin(generation, saved)
	}
}

// newOutput returns the output of a process that is about to start.
func (t *Table) newOutput() *output {
	o := newOutput(maxOutput, stall)
	o.history = &t.history
	t.mu.Lock()
	defer t.mu.Unlock()
	o.lineage.begin(t.generation, time.Time{}, 0)
	return o
}

// known returns the processes that run, and those that have ended and are remembered.
func (t *Table) known() []*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := slices.Clone(t.ended)
	for _, p := range t.byPID {
		if !slices.Contains(t.ended, p) {
			known = append(known, p)
		}
	}
	return known
}

func (t *Table) outputs() []*output {
	var all []*output
	for _, p := range t.known() {
		all = append(all, p.out)
	}
	return all
}

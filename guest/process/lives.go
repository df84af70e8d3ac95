package process

import (
	"maps"
	"slices"
	"time"
)

// Begin says that a life of the sandbox has begun, from an image that was saved at that
// moment; zero: from none.
func (t *Table) Begin(generation uint64, saved time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generation = generation
	for _, p := range t.known() {
		p.out.begin(generation, saved)
	}
}

// Shift moves the deadlines of all processes, also that until which an ended one is
// remembered, and those of the readers of their output: the sandbox was in an image for
// so long, which was saved at that moment. What was set later stays.
func (t *Table) Shift(saved time.Time, by time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.known() {
		p.deadline.shift(saved, by)
		p.forgotten.shift(saved, by)
		p.out.shift(saved, by)
		if at := t.starting[p]; !at.IsZero() && !p.begun.After(saved) {
			t.starting[p] = at.Add(by)
		}
	}
}

// expect takes note of a process that is about to start, and gives it its output: the
// sandbox may be saved before it has a number.
func (t *Table) expect(p *Process, deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.begun = time.Now()
	p.out = newOutput(maxOutput, stall)
	p.out.history = &t.history
	p.out.lineage.begin(t.generation, time.Time{}, 0)
	t.starting[p] = deadline
}

// unexpect is for a process that does not start; harmless when it has.
func (t *Table) unexpect(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.starting, p)
}

// known returns the processes that run or are about to, and those that have ended and are
// remembered. The caller holds mu.
func (t *Table) known() []*Process {
	known := slices.AppendSeq(slices.Clone(t.ended), maps.Keys(t.starting))
	for _, p := range t.byPID {
		if !slices.Contains(t.ended, p) {
			known = append(known, p)
		}
	}
	return known
}

func (t *Table) outputs() []*output {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*output
	for _, p := range t.known() {
		all = append(all, p.out)
	}
	return all
}

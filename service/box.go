package service

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// box is one sandbox. Whoever holds its turn may change its record; everybody may
// read it.
type box struct {
	id cube.SandboxID
	// started orders lists. It never changes.
	started time.Time
	turn    chan struct{} // holds one: the lock that verbs take
	over    chan struct{} // closed when it has ended

	mu     sync.Mutex // guards the following
	rec    cube.Record
	shared *cube.Record  // a copy of rec that never changes, for lists; nil: make one
	doom   chan struct{} // closed when somebody kills it
	mask   string        // network.maskRequestHost
	doomed bool
	gone   bool // it has ended
	// final is the record of its end while that is being written.
	final *cube.Record
	timer *time.Timer
	// retryAt is before when a timeout that failed is not tried again.
	retryAt time.Time
	// pardoned is closed when a kill has failed; nil while none is at work.
	pardoned chan struct{}
	health   health
	// Traffic, for ClockIdle: streams that are open, and when the last one was.
	streams int
	last    time.Time
}

func newBox(r cube.Record) *box {
	b := &box{
		id: r.ID, started: r.StartedAt, rec: r, last: time.Now(), mask: maskHost(r.Network),
		turn: make(chan struct{}, 1), doom: make(chan struct{}), over: make(chan struct{}),
	}
	return b
}

// maskHost reads the one thing in a network policy that requests need.
func maskHost(network json.RawMessage) string {
	var n struct {
		MaskRequestHost string `json:"maskRequestHost"`
	}
	if len(network) == 0 || json.Unmarshal(network, &n) != nil {
		return ""
	}
	return n.MaskRequestHost
}

// enter takes the turn, however long that is.
func (b *box) enter() { b.turn <- struct{}{} }

func (b *box) leave() { <-b.turn }

// untilDoomed gives a context that also ends when somebody kills the sandbox.
func (b *box) untilDoomed(ctx context.Context) (context.Context, context.CancelFunc) {
	b.mu.Lock()
	doom := b.doom
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-doom:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// record is what it is now, with the end that its clock projects.
func (b *box) record() cube.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rec
	r.EndAt = b.end()
	return r
}

// end is when its time is over; zero for never. mu is held.
func (b *box) end() time.Time {
	if b.rec.Clock != cube.ClockIdle || b.rec.EndAt.IsZero() {
		return b.rec.EndAt
	}
	last := b.last
	if b.streams > 0 {
		last = time.Now()
	}
	if e := last.Add(b.rec.Timeout); e.After(b.rec.EndAt) {
		return e
	}
	return b.rec.EndAt
}

// turnOf waits for the turn of a sandbox that nobody kills. leave ends it.
func (s *Service) turnOf(ctx context.Context, id cube.SandboxID) (*box, error) {
	b, err := s.find(id)
	if err != nil {
		return nil, err
	}
	defer timing.Phase(ctx, "wait")()
	b.mu.Lock()
	doom := b.doom
	b.mu.Unlock()
	select {
	case b.turn <- struct{}{}:
	case <-doom:
		return nil, s.killed(b)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.mu.Lock()
	gone, doomed := b.gone, b.doomed
	b.mu.Unlock()
	switch {
	case gone:
		b.leave()
		_, err := s.find(id)
		return nil, err
	case doomed:
		b.leave()
		return nil, s.killed(b)
	}
	return b, nil
}

// killed is what verbs get that a Kill, or the sandbox's death, has overtaken.
func (s *Service) killed(b *box) error {
	if last := b.ending(); last != nil {
		return s.endedError(*last)
	}
	return fmt.Errorf("sandbox %s (it is being killed): %w", b.id, cube.ErrNotFound)
}

// ending is the record of its end while that is being written, else nil.
func (b *box) ending() *cube.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.final
}

// runner waits for the turn of a sandbox that runs.
func (s *Service) runner(ctx context.Context, id cube.SandboxID, verb string) (*box, error) {
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if p := b.rec.Phase; p != cube.PhaseRunning {
		b.leave()
		return nil, fmt.Errorf("%s: sandbox %s is %s; resume it first: %w", verb, id, p, cube.ErrConflict)
	}
	return b, nil
}

// between is what a verb gets on a sandbox that an earlier one has left in the middle: a
// start could not conclude that yet.
func (b *box) between(verb string, p cube.Phase) error {
	return fmt.Errorf("%s: sandbox %s is %s, which could not be completed yet and is tried again every few seconds; wait, or kill it: %w", verb, b.id, p, cube.ErrConflict)
}

// start begins a verb: its plan and the phase that it brings about, in one write. The
// caller has the turn. What could not be written changes nothing.
func (s *Service) start(ctx context.Context, b *box, w *work, change func(*cube.Record)) error {
	was := b.rec
	// The engine gives a sandbox another life by itself where its network is lost.
	if sb, err := s.engine.Sandbox(ctx, b.id); err == nil {
		was.Generation = max(was.Generation, sb.Generation)
	}
	r := changed(was, change)
	if err := s.begin(ctx, w, cube.Batch{Sandboxes: []cube.Record{r}}); err != nil {
		return fmt.Errorf("%s %s: write its record: %w", w.Verb, b.id, err)
	}
	b.set(r)
	return nil
}

// put writes a changed record and makes it the sandbox's, where no plan is needed.
func (s *Service) put(ctx context.Context, b *box, change func(*cube.Record)) error {
	r := changed(b.rec, change)
	if err := s.apply(ctx, cube.Batch{Sandboxes: []cube.Record{r}}); err != nil {
		return fmt.Errorf("write the record of %s: %w", b.id, err)
	}
	b.set(r)
	return nil
}

// settle ends a verb where the world has already changed: the record follows, also
// when it cannot be written. The next start finds out from the engine.
func (s *Service) settle(ctx context.Context, b *box, w *work, change func(*cube.Record)) error {
	r := changed(b.rec, change)
	err := s.commit(ctx, w.end(cube.Batch{Sandboxes: []cube.Record{r}}))
	b.set(r)
	return err
}

func changed(r cube.Record, change func(*cube.Record)) cube.Record {
	was := r.Phase
	if change(&r); r.Phase != was {
		r.ChangedAt = time.Now()
	}
	return r
}

func (b *box) set(r cube.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rec, b.shared = r, nil
}

// seenAs is the record for readers. mu is held.
func (b *box) seenAs() *cube.Record {
	if b.shared == nil {
		r := b.rec
		b.shared = &r
	}
	return b.shared
}

package durable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// worker is a client that does this and that with sandboxes of its own, one after the
// other, and notes what it was answered, until the power is cut.
type worker struct {
	t       *testing.T
	s       *lab.Server
	l       *ledger
	owner   int
	random  *rand.Rand
	witness string       // a snapshot to make sandboxes from
	cut     *atomic.Bool // from here on an error is no news
	answers chan<- verb  // gets the verb of each answer, if somebody waits for one
	keys    int
}

// mostBoxes is how many sandboxes a worker has at most.
const mostBoxes = 3

// work goes on until an answer does not come.
func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.one(ctx); err != nil {
			if !w.cut.Load() {
				w.t.Errorf("before the cut: %v", err)
			}
			return
		}
	}
}

// one does one thing.
func (w *worker) one(ctx context.Context) error {
	boxes := w.l.of(w.owner)
	if len(boxes) == 0 || len(boxes) < mostBoxes && w.random.IntN(3) == 0 {
		return w.create(ctx)
	}
	b := boxes[w.random.IntN(len(boxes))]
	if b.paused {
		switch w.random.IntN(8) {
		case 0:
			return w.kill(ctx, b)
		case 1, 2:
			return w.resume(ctx, b)
		}
		return nil // it stays so, most of the time
	}
	snaps := w.l.snapshotsOf(b.ID)
	switch n := w.random.IntN(20); {
	case n < 5:
		return w.step(ctx, b)
	case n < 9:
		return w.pause(ctx, b)
	case n < 14 && len(snaps) < 3:
		return w.snapshot(ctx, b)
	case n < 16 && len(snaps) > 0:
		return w.rollback(ctx, b, snaps[w.random.IntN(len(snaps))])
	case n < 17 && len(snaps) > 1:
		return w.deleteSnapshot(ctx, snaps[w.random.IntN(len(snaps))])
	case n < 18:
		return w.kill(ctx, b)
	case n < 19 && len(boxes) < mostBoxes:
		return w.clone(ctx, b)
	}
	return w.step(ctx, b)
}

func (w *worker) key() string {
	w.keys++
	return fmt.Sprintf("worker-%d-request-%d-%08x", w.owner, w.keys, w.random.Uint32())
}

func (w *worker) create(ctx context.Context) error {
	auto := w.random.IntN(3) == 0
	n := client.NewSandbox{
		Template: w.witness, Timeout: time.Hour, Env: map[string]string{"MARK": fmt.Sprintf("%08x", w.random.Uint32())}, AutoRecover: auto,
	}
	if w.random.IntN(2) == 0 {
		n.Key = w.key()
		n.Metadata = map[string]string{"key": n.Key}
	}
	made, err := w.s.API.Create(ctx, n)
	if n.Key != "" {
		w.l.mu.Lock()
		w.l.creates = append(w.l.creates, create{n, made.ID})
		w.l.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	b := &box{Sandbox: made, owner: w.owner, auto: auto, at: time.Now()}
	w.l.add(b)
	b.doubt = verbStep
	b.st, err = w.in(b).renew(ctx)
	return w.answered(b, err)
}

func (w *worker) in(b *box) inside { return inside{w.s, b.Sandbox} }

// answered notes that the answer to a verb came.
func (w *worker) answered(b *box, err error) error {
	if err != nil {
		return fmt.Errorf("%s of %s: %w", b.doubt, b.ID, err)
	}
	select {
	case w.answers <- b.doubt:
	default:
	}
	b.doubt, b.at = nothing, time.Now()
	return nil
}

func (w *worker) step(ctx context.Context, b *box) error {
	b.doubt = verbStep
	st, err := w.in(b).step(ctx)
	if err == nil {
		b.st = st
	}
	return w.answered(b, err)
}

func (w *worker) pause(ctx context.Context, b *box) error {
	b.doubt = verbHalt
	err := w.s.API.Pause(ctx, b.ID)
	b.paused = b.paused || err == nil
	return w.answered(b, err)
}

func (w *worker) resume(ctx context.Context, b *box) error {
	b.doubt = verbWake
	now, err := w.s.API.Resume(ctx, b.ID, 0)
	if err == nil {
		b.paused = false
		if now.AccessToken != b.AccessToken {
			w.t.Errorf("%s has another token after a resume", b.ID)
		}
	}
	return w.answered(b, err)
}

func (w *worker) snapshot(ctx context.Context, b *box) error {
	sn := &snapshot{source: b.ID, st: b.st}
	if w.random.IntN(2) == 0 {
		sn.key = w.key()
	}
	if w.random.IntN(2) == 0 {
		sn.name = fmt.Sprintf("s%08x", w.random.Uint32())
	}
	b.doubt = verbSnap
	made, err := w.s.API.SnapshotOnce(ctx, b.ID, sn.name, sn.key)
	if err == nil {
		sn.id, sn.durable = made.ID, made.Durable
		w.l.addSnapshot(sn)
	}
	return w.answered(b, err)
}

func (w *worker) rollback(ctx context.Context, b *box, sn *snapshot) error {
	b.doubt = verbBack
	err := w.s.API.Rollback(ctx, b.ID, string(sn.id))
	if err == nil {
		b.st = sn.st
	}
	return w.answered(b, err)
}

func (w *worker) deleteSnapshot(ctx context.Context, sn *snapshot) error {
	sn.doubt = true
	if err := w.s.API.DeleteImage(ctx, string(sn.id)); err != nil {
		return fmt.Errorf("delete %s: %w", sn.id, err)
	}
	sn.deleted, sn.doubt = true, false
	return nil
}

func (w *worker) kill(ctx context.Context, b *box) error {
	b.doubt = verbKill
	err := w.s.API.Kill(ctx, b.ID)
	b.killed = b.killed || err == nil
	return w.answered(b, err)
}

func (w *worker) clone(ctx context.Context, b *box) error {
	b.doubt = verbCopy
	made, err := w.s.API.Clone(ctx, b.ID, client.Cloning{Count: 2})
	for _, m := range made {
		w.l.add(&box{Sandbox: m, owner: w.owner, auto: b.auto, st: b.st, at: time.Now()})
	}
	return w.answered(b, err)
}

// watch notes which snapshots the server says are durable.
func watch(ctx context.Context, s *lab.Server, l *ledger) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if all, err := s.API.Snapshots(ctx, ""); err == nil { // else the power is cut
			l.durable(all)
		}
	}
}

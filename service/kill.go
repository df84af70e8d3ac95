package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// Kill implements cube.Service. Once others have been told that the sandbox is being
// killed it goes on, whatever becomes of ctx.
func (s *Service) Kill(ctx context.Context, id cube.SandboxID) error {
	b, err := s.find(id)
	if err != nil {
		if ok, derr := s.discardEnded(ctx, id); ok {
			return derr
		}
		return err
	}
	if !b.condemn() {
		return s.awaitKill(ctx, b)
	}
	done := make(chan error, 1)
	kill := func() {
		wait := timing.Phase(ctx, "wait")
		b.enter()
		wait()
		defer b.leave()
		done <- s.execute(context.WithoutCancel(ctx), b, cube.DeathKilled)
	}
	if !s.spawn(kill) {
		b.pardon()
		return fmt.Errorf("kill %s: the server is stopping: %w", id, cube.ErrUnavailable)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("kill %s: it goes on: %w", id, ctx.Err())
	}
}

// condemn says that the sandbox is to be killed, and whether we are the first to.
func (b *box) condemn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doomed || b.gone {
		return false
	}
	b.doomed, b.pardoned = true, make(chan struct{})
	close(b.doom)
	return true
}

// awaitKill waits for a kill that is at work.
func (s *Service) awaitKill(ctx context.Context, b *box) error {
	b.mu.Lock()
	pardoned := b.pardoned
	b.mu.Unlock()
	select {
	case <-b.over:
	case <-pardoned:
		return fmt.Errorf("kill %s: another kill that was at work has failed; try again: %w", b.id, cube.ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
	if ok, err := s.discardEnded(ctx, b.id); ok { // it has died meanwhile
		return err
	}
	_, err := s.find(b.id)
	return err
}

// pardon takes a condemnation back after a kill that failed.
func (b *box) pardon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doomed = false
	b.doom = make(chan struct{})
	close(b.pardoned)
}

// execute ends a condemned sandbox. The caller has the turn.
func (s *Service) execute(ctx context.Context, b *box, reason cube.DeathReason) error {
	b.mu.Lock()
	gone := b.gone
	b.mu.Unlock()
	if gone {
		// It was being brought back, and that has failed.
		if ok, err := s.discardEnded(ctx, b.id); ok {
			return err
		}
		_, err := s.find(b.id)
		return err
	}
	was := b.rec
	why := cube.Death{Reason: reason, At: time.Now()}
	w := s.killing(newPlan(cube.VerbKill, b.id), b, was, why)
	if err := s.start(ctx, b, w, func(r *cube.Record) {
		r.Phase, r.End = cube.PhaseKilling, &why
	}); err != nil {
		// A full disk must not keep anybody from ending what fills it.
		s.log.Error("a kill could not be recorded beforehand", "sandbox", b.id, "error", err)
	}
	if err := s.run(ctx, w); err != nil {
		b.pardon()
		b.retry(time.Now().Add(retryAfter))
		s.arm(b) // its time may have been over meanwhile
		return fmt.Errorf("kill %s: %w", b.id, err)
	}
	return nil
}

// killing is the work of kill, on what was in some phase. A start finishes it.
func (s *Service) killing(p cube.Plan, b *box, was cube.Record, why cube.Death) *work {
	w := &work{Plan: p}
	w.steps = []step{
		{name: "end", do: func(ctx context.Context) error { return s.engineKill(ctx, b.id) },
			done: func(ctx context.Context) bool {
				_, err := s.engine.Sandbox(ctx, b.id)
				return errors.Is(err, cube.ErrNotFound)
			}},
		{name: "record", sure: true, do: func(ctx context.Context) error {
			return s.finish(ctx, b, w, was.Phase == cube.PhaseRunning, epitaph(b.rec, why))
		}},
		{name: "free", sure: true, do: func(context.Context) error {
			if was.Image != "" {
				s.deleteImage(was.Image, b.id)
			}
			return s.release(was.Template)
		}},
	}
	w.back = func(ctx context.Context) error {
		return s.settle(ctx, b, w, func(r *cube.Record) { r.Phase, r.End = was.Phase, was.End })
	}
	return w
}

func (s *Service) engineKill(ctx context.Context, id cube.SandboxID) error {
	defer timing.Phase(ctx, "engine")()
	if err := s.engine.Kill(ctx, id); err != nil && !errors.Is(err, cube.ErrNotFound) {
		return err
	}
	return nil
}

// bury ends what the engine has and nobody has heard of.
func (s *Service) bury(ctx context.Context, id cube.SandboxID) {
	if err := s.engineKill(ctx, id); err != nil {
		s.log.Error("a sandbox that nobody knows stays until the next start", "sandbox", id, "error", err)
	}
}

// finish takes a sandbox out of what can be found, and keeps why. The engine has no
// process of it any more. The caller has the turn.
func (s *Service) finish(ctx context.Context, b *box, w *work, ran bool, last cube.Record) error {
	b.mu.Lock()
	b.final = &last
	b.mu.Unlock()
	b.condemn() // from here on nobody sees it
	err := s.settle(ctx, b, w, func(r *cube.Record) { *r = last })
	// The engine's own note of a death goes after the record, for it is what the next
	// start reads where that could not be written; and before anybody can bring the
	// sandbox back, who would find it there.
	if err == nil {
		s.bury(ctx, b.id)
	}
	b.disarm()
	if ran {
		s.cpus.free(last.Limits.CPUs)
	}
	s.retire(b, last)
	return err
}

// retire takes a sandbox from those that there are to those that have ended, and lets
// go whoever waits for it. The caller has the turn.
func (s *Service) retire(b *box, last cube.Record) {
	s.mu.Lock()
	delete(s.boxes, b.id)
	s.order = nil
	s.ended[b.id] = last
	s.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	close(b.over)
}

// epitaph is what is kept of a sandbox that has ended. Its secrets are not.
func epitaph(r cube.Record, why cube.Death) cube.Record {
	return cube.Record{
		ID: r.ID, Generation: r.Generation, Phase: cube.PhaseEnded, Template: r.Template, Alias: r.Alias, Parent: r.Parent,
		Limits: r.Limits, Metadata: r.Metadata, Clock: r.Clock, Timeout: r.Timeout, OnTimeout: r.OnTimeout,
		StartedAt: r.StartedAt, ChangedAt: why.At, End: &why,
	}
}

// forget drops what ended long ago. What can be recovered is kept for as long as that
// is so.
func (s *Service) forget() {
	before := time.Now().Add(-s.conf.Keep)
	s.mu.Lock()
	var old []cube.SandboxID
	for id, r := range s.ended {
		if r.ChangedAt.Before(before) && !r.Recoverable {
			old = append(old, id)
			delete(s.ended, id)
		}
	}
	s.mu.Unlock()
	if len(old) == 0 {
		return
	}
	if err := s.apply(s.ctx, cube.Batch{DropSandboxes: old}); err != nil {
		s.log.Warn("old records could not be forgotten", "error", err)
	}
}

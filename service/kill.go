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
		_, err := s.find(b.id)
		return err
	}
	ran := b.rec.Phase == cube.PhaseRunning
	if err := s.put(ctx, b, func(r *cube.Record) { r.Phase = cube.PhaseKilling }); err != nil {
		// A full disk must not keep anybody from ending what fills it.
		s.log.Error("a kill could not be recorded beforehand", "sandbox", b.id, "error", err)
	}
	if err := s.engineKill(ctx, b.id); err != nil {
		phase := cube.PhasePaused
		if ran {
			phase = cube.PhaseRunning
		}
		s.settle(ctx, b, func(r *cube.Record) { r.Phase = phase })
		b.pardon()
		b.retry(time.Now().Add(retryAfter))
		s.arm(b) // its time may have been over meanwhile
		return fmt.Errorf("kill %s: %w", b.id, err)
	}
	s.finish(ctx, b, ran, cube.Death{Reason: reason, At: time.Now()})
	return nil
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

// finish takes a sandbox out of what can be found, and keeps why. The engine has
// no process of it any more. The caller has the turn.
func (s *Service) finish(ctx context.Context, b *box, ran bool, why cube.Death) {
	b.condemn() // from here on nobody sees it
	image := b.rec.Image
	s.settle(ctx, b, func(r *cube.Record) { *r = epitaph(*r, why) })
	b.disarm()
	if ran {
		s.cpus.free(b.rec.Limits.CPUs)
	}
	if image != "" {
		s.deleteImage(image, b.id)
	}
	s.mu.Lock()
	delete(s.boxes, b.id)
	s.order = nil
	s.ended[b.id] = b.rec
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

// forget drops what ended long ago.
func (s *Service) forget() {
	before := time.Now().Add(-s.conf.Keep)
	s.mu.Lock()
	var old []cube.SandboxID
	for id, r := range s.ended {
		if r.ChangedAt.Before(before) {
			old = append(old, id)
			delete(s.ended, id)
		}
	}
	s.mu.Unlock()
	for _, id := range old {
		if err := s.store.DeleteSandbox(s.ctx, id); err != nil {
			s.log.Warn("an old record could not be deleted", "sandbox", id, "error", err)
		}
	}
}

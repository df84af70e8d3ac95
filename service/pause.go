package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// Pause implements cube.Service.
func (s *Service) Pause(ctx context.Context, id cube.SandboxID, o cube.Pausing) error {
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return err
	}
	defer b.leave()
	switch p := b.rec.Phase; p {
	case cube.PhaseRunning:
		return s.pause(ctx, b, o)
	case cube.PhasePaused:
		return fmt.Errorf("error pausing sandbox: sandbox '%s' is already paused: %w", id, cube.ErrConflict)
	default:
		return b.between("pause", p)
	}
}

// pause saves and frees a sandbox. The caller has the turn.
func (s *Service) pause(ctx context.Context, b *box, o cube.Pausing) error {
	p := newPlan(cube.VerbPause, b.id)
	p.Image = cube.NewSnapshotID()
	w := s.pausing(p, b, o)
	if err := s.start(ctx, b, w, func(r *cube.Record) { r.Phase, r.Image = cube.PhasePausing, p.Image }); err != nil {
		return err
	}
	b.disarm()
	if err := s.run(ctx, w); err != nil {
		s.arm(b)
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			return s.killed(b) // a kill has given it up
		}
		return s.orDead(ctx, b, fmt.Errorf("pause %s: %w", b.id, err))
	}
	s.cpus.free(b.rec.Limits.CPUs)
	return w.late
}

// pausing is the work of pause.
func (s *Service) pausing(p cube.Plan, b *box, o cube.Pausing) *work {
	w := &work{Plan: p, from: 1}
	w.steps = []step{
		{name: "save", do: func(ctx context.Context) error {
			ctx, cancel := b.untilDoomed(ctx) // a guest must not hold up who kills it
			defer cancel()
			return s.enginePause(ctx, b.id, p.Image, o)
		},
			undo: func(context.Context) { s.deleteImage(p.Image, b.id) },
			done: func(ctx context.Context) bool { return s.saved(p.Image) && !s.alive(ctx, b.id) }},
		{name: "record", sure: true, do: func(ctx context.Context) error {
			return s.settle(ctx, b, w, func(r *cube.Record) {
				r.Phase, r.EndAt = cube.PhasePaused, time.Time{}
				if im, err := s.images.Image(p.Image); err == nil {
					r.Generation = max(r.Generation, im.Generation)
				}
			})
		}},
	}
	w.back = func(ctx context.Context) error {
		return s.settle(ctx, b, w, func(r *cube.Record) { r.Phase, r.Image = cube.PhaseRunning, "" })
	}
	return w
}

func (s *Service) enginePause(ctx context.Context, id cube.SandboxID, image cube.ImageID, o cube.Pausing) error {
	defer timing.Phase(ctx, "engine")()
	_, err := s.engine.Pause(ctx, id, image, o)
	return err
}

// Resume implements cube.Service.
func (s *Service) Resume(ctx context.Context, id cube.SandboxID, o cube.Resumption) (cube.Record, error) {
	if err := checkResumption(id, o); err != nil {
		return cube.Record{}, err
	}
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return cube.Record{}, err
	}
	defer b.leave()
	switch p := b.rec.Phase; p {
	case cube.PhasePaused:
	case cube.PhaseRunning:
		return cube.Record{}, fmt.Errorf("error resuming sandbox: sandbox '%s' is already running: %w", id, cube.ErrConflict)
	default:
		return cube.Record{}, b.between("resume", p)
	}
	if err := s.resume(ctx, b, o); err != nil {
		return cube.Record{}, err
	}
	return b.record(), nil
}

// Connect implements cube.Service.
func (s *Service) Connect(ctx context.Context, id cube.SandboxID, o cube.Resumption) (r cube.Record, resumed bool, err error) {
	if err := checkResumption(id, o); err != nil {
		return cube.Record{}, false, err
	}
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return cube.Record{}, false, err
	}
	defer b.leave()
	switch p := b.rec.Phase; p {
	case cube.PhaseRunning:
	case cube.PhasePaused:
		if err := s.resume(ctx, b, o); err != nil {
			return cube.Record{}, false, err
		}
		return b.record(), true, nil
	default:
		return cube.Record{}, false, b.between("connect", p)
	}
	if o.Timeout != 0 {
		if err := s.retime(ctx, b, func(r *cube.Record) { reconnect(r, o.Timeout) }); err != nil {
			return cube.Record{}, false, err
		}
	}
	return b.record(), false, nil
}

// reconnect gives a running sandbox the timeout of a connect.
func reconnect(r *cube.Record, d time.Duration) {
	if r.Clock != cube.ClockIdle {
		extend(r, d)
		return
	}
	r.Timeout, r.EndAt = d, endFrom(time.Now(), d)
}

func checkResumption(id cube.SandboxID, o cube.Resumption) error {
	if o.Timeout == 0 {
		return nil
	}
	if err := checkTimeout(o.Timeout); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	return nil
}

// resume brings a paused sandbox back. The caller has the turn.
func (s *Service) resume(ctx context.Context, b *box, o cube.Resumption) error {
	release, err := s.cpus.reserve(b.rec.Limits.CPUs)
	if err != nil {
		return fmt.Errorf("resume %s: %w", b.id, err)
	}
	p := newPlan(cube.VerbResume, b.id)
	p.Image = b.rec.Image
	how := cube.RestoredMemory
	im, err := s.images.Image(p.Image)
	if o.Files || err == nil && im.FilesOnly {
		how = cube.RestoredFiles
	}
	if o.Files && err == nil && im.FilesBytes == 0 {
		release()
		return fmt.Errorf("resume %s: it has no files apart from its memory; resume it with its memory: %w", b.id, cube.ErrConflict)
	}
	w := s.resuming(p, b, o)
	if err := s.start(ctx, b, w, func(r *cube.Record) {
		r.Phase, r.Generation, r.Restored = cube.PhaseResuming, r.Generation+1, how
	}); err != nil {
		release()
		return err
	}
	if err := s.run(ctx, w); err != nil {
		release()
		return fmt.Errorf("resume %s: %w", b.id, err)
	}
	s.arm(b)
	return w.late
}

// resuming is the work of resume.
func (s *Service) resuming(p cube.Plan, b *box, o cube.Resumption) *work {
	w := &work{Plan: p, from: 1}
	w.steps = []step{
		{name: "restore", do: func(ctx context.Context) error { return s.restore(ctx, b, o) },
			undo: func(ctx context.Context) { s.bury(ctx, b.id) },
			done: func(ctx context.Context) bool { return s.alive(ctx, b.id) }},
		{name: "record", sure: true, do: func(ctx context.Context) error {
			return s.settle(ctx, b, w, func(r *cube.Record) { s.resumed(ctx, r, o) })
		}},
		{name: "free", sure: true, do: func(context.Context) error {
			s.deleteImage(p.Image, b.id)
			return nil
		}},
	}
	w.back = func(ctx context.Context) error {
		return s.settle(ctx, b, w, func(r *cube.Record) { r.Phase = cube.PhasePaused })
	}
	return w
}

// resumed is what a record becomes when its sandbox runs again.
func (s *Service) resumed(ctx context.Context, r *cube.Record, o cube.Resumption) {
	if sb, err := s.engine.Sandbox(ctx, r.ID); err == nil {
		r.Generation = sb.Generation
	}
	r.Phase, r.Image = cube.PhaseRunning, ""
	if o.Timeout != 0 {
		r.Timeout = o.Timeout
	}
	if o.OnTimeout != nil {
		r.OnTimeout = *o.OnTimeout
	}
	if o.AutoResume != nil {
		r.AutoResume = *o.AutoResume
	}
	r.EndAt = endFrom(time.Now(), r.Timeout)
}

// restore has the engine make a life from the saved state: from its memory, or, where
// that is asked for, or allowed and there is no other way, by a cold boot from its files.
func (s *Service) restore(ctx context.Context, b *box, o cube.Resumption) error {
	err := s.engineResume(ctx, b.rec)
	if err == nil || b.rec.Restored == cube.RestoredFiles || !errors.Is(err, cube.ErrCorrupt) && !errors.Is(err, cube.ErrIncompatible) {
		return err
	}
	if im, ierr := s.images.Image(b.rec.Image); ierr != nil || im.FilesBytes == 0 {
		return err
	}
	if !o.FilesFallback && !b.rec.FilesFallback {
		return fmt.Errorf("%w; its files are kept apart: resume it with filesFallback to boot it from them (cube sandbox resume --files-fallback %s)", err, b.id)
	}
	s.log.Warn("the memory of a sandbox cannot be used; it is booted from its files", "sandbox", b.id, "image", b.rec.Image, "error", err)
	// Written before it happens: a start that finds the sandbox must know.
	if err := s.put(ctx, b, func(r *cube.Record) { r.Restored = cube.RestoredFiles }); err != nil {
		return err
	}
	return s.engineResume(ctx, b.rec)
}

func (s *Service) engineResume(ctx context.Context, r cube.Record) error {
	defer timing.Phase(ctx, "engine")()
	_, err := s.engine.Resume(ctx, cube.CreateSpec{
		ID: r.ID, Generation: r.Generation, Identity: r.Identity, Image: r.Image, Files: r.Restored == cube.RestoredFiles,
	})
	return err
}

// deleteImage removes an image that nothing refers to any more.
func (s *Service) deleteImage(image cube.ImageID, id cube.SandboxID) {
	if err := s.images.Delete(image); err != nil && !errors.Is(err, cube.ErrNotFound) {
		s.log.Error("an image stays until the next collection", "image", image, "sandbox", id, "error", err)
	}
}

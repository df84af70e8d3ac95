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
func (s *Service) Pause(ctx context.Context, id cube.SandboxID) error {
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return err
	}
	defer b.leave()
	if b.rec.Phase == cube.PhasePaused {
		return fmt.Errorf("error pausing sandbox: sandbox '%s' is already paused: %w", id, cube.ErrConflict)
	}
	return s.pause(ctx, b)
}

// pause saves and frees a sandbox. The caller has the turn.
func (s *Service) pause(ctx context.Context, b *box) error {
	image := cube.NewSnapshotID()
	if err := s.put(ctx, b, func(r *cube.Record) { r.Phase, r.Image = cube.PhasePausing, image }); err != nil {
		return err
	}
	b.disarm()
	if err := s.enginePause(ctx, b.id, image); err != nil {
		s.settle(ctx, b, func(r *cube.Record) { r.Phase, r.Image = cube.PhaseRunning, "" })
		s.arm(b)
		return s.orDead(ctx, b, fmt.Errorf("pause %s: %w", b.id, err))
	}
	s.settle(ctx, b, func(r *cube.Record) { r.Phase, r.EndAt = cube.PhasePaused, time.Time{} })
	s.cpus.free(b.rec.Limits.CPUs)
	return nil
}

func (s *Service) enginePause(ctx context.Context, id cube.SandboxID, image cube.ImageID) error {
	defer timing.Phase(ctx, "engine")()
	_, err := s.engine.Pause(ctx, id, image)
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
	if b.rec.Phase == cube.PhaseRunning {
		return cube.Record{}, fmt.Errorf("error resuming sandbox: sandbox '%s' is already running: %w", id, cube.ErrConflict)
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
	if b.rec.Phase == cube.PhasePaused {
		if err := s.resume(ctx, b, o); err != nil {
			return cube.Record{}, false, err
		}
		return b.record(), true, nil
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
	if err := s.put(ctx, b, func(r *cube.Record) { r.Phase, r.Generation = cube.PhaseResuming, r.Generation+1 }); err != nil {
		release()
		return err
	}
	made, err := s.engineResume(ctx, b.rec)
	if err != nil {
		release()
		s.settle(ctx, b, func(r *cube.Record) { r.Phase = cube.PhasePaused })
		return fmt.Errorf("resume %s: %w", b.id, err)
	}
	image := b.rec.Image
	s.settle(ctx, b, func(r *cube.Record) {
		r.Phase, r.Generation, r.Image = cube.PhaseRunning, made.Generation, ""
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
	})
	s.arm(b)
	s.deleteImage(image, b.id)
	return nil
}

func (s *Service) engineResume(ctx context.Context, r cube.Record) (cube.Sandbox, error) {
	defer timing.Phase(ctx, "engine")()
	return s.engine.Resume(ctx, cube.CreateSpec{ID: r.ID, Generation: r.Generation, Identity: r.Identity, Image: r.Image})
}

// deleteImage removes an image that nothing refers to any more.
func (s *Service) deleteImage(image cube.ImageID, id cube.SandboxID) {
	if err := s.images.Delete(image); err != nil && !errors.Is(err, cube.ErrNotFound) {
		s.log.Error("an image stays until the next start", "image", image, "sandbox", id, "error", err)
	}
}

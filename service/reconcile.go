package service

import (
	"context"
	"errors"
	"time"

	cube "cubesandbox"
)

// reconcile brings what the records say and what there is together. It is the
// table in DESIGN.md, and can be done again at any time before serving.
func (s *Service) reconcile(ctx context.Context) error {
	recs, err := s.store.Sandboxes(ctx)
	if err != nil {
		return err
	}
	live, err := s.engine.Sandboxes(ctx)
	if err != nil {
		return err
	}
	real := map[cube.SandboxID]cube.Sandbox{}
	for _, sb := range live {
		real[sb.ID] = sb
	}
	for _, r := range recs {
		sb, has := real[r.ID]
		delete(real, r.ID)
		if err := s.adopt(ctx, r, sb, has); err != nil {
			return err
		}
	}
	for id := range real {
		s.log.Warn("a sandbox without a record is ended", "sandbox", id)
		s.bury(ctx, id)
	}
	if err := s.adoptSnapshots(ctx); err != nil {
		return err
	}
	s.sweep(recs)
	return nil
}

// adopt decides what a record means, given what the engine has.
func (s *Service) adopt(ctx context.Context, r cube.Record, sb cube.Sandbox, has bool) error {
	alive := has && sb.State != cube.StateDead
	saved := r.Image != "" && s.published(r.Image)
	switch {
	case r.Phase == cube.PhaseEnded:
		s.ended[r.ID] = r
		return nil
	case r.Phase == cube.PhaseCreating: // whoever asked for it never heard of it
		s.bury(ctx, r.ID)
		return s.store.DeleteSandbox(ctx, r.ID)
	case r.Phase == cube.PhaseKilling:
		return s.adoptEnd(ctx, r, cube.Death{Reason: cube.DeathKilled, At: time.Now()})
	case r.Phase == cube.PhasePaused && saved, r.Phase == cube.PhaseResuming && !alive && saved, r.Phase == cube.PhasePausing && !alive && saved:
		if has {
			s.bury(ctx, r.ID)
		}
		return s.adoptPaused(ctx, r)
	case alive:
		return s.adoptRunning(ctx, r, sb)
	case has && sb.Death != nil:
		return s.adoptEnd(ctx, r, *sb.Death)
	case r.Phase == cube.PhasePaused || r.Phase == cube.PhaseResuming:
		return s.adoptEnd(ctx, r, cube.Death{Reason: cube.DeathImage, Detail: "its saved state " + string(r.Image) + " is gone", At: time.Now()})
	default:
		return s.adoptEnd(ctx, r, cube.Death{Reason: cube.DeathUnknown, Detail: "it ended while the server was not there", At: time.Now()})
	}
}

func (s *Service) published(id cube.ImageID) bool {
	_, err := s.images.Image(id)
	return !errors.Is(err, cube.ErrNotFound)
}

func (s *Service) adoptRunning(ctx context.Context, r cube.Record, sb cube.Sandbox) error {
	was := r
	r.Phase, r.Generation, r.Image = cube.PhaseRunning, sb.Generation, ""
	if was.Phase == cube.PhaseResuming {
		r.EndAt = endFrom(time.Now(), r.Timeout)
	}
	if was.Phase != r.Phase || was.Generation != r.Generation || was.Image != r.Image {
		r.ChangedAt = time.Now()
		if err := s.write(ctx, r); err != nil {
			return err
		}
	}
	if was.Image != "" {
		s.deleteImage(was.Image, r.ID)
	}
	s.cpus.take(r.Limits.CPUs)
	s.enlist(r)
	return nil
}

func (s *Service) adoptPaused(ctx context.Context, r cube.Record) error {
	if r.Phase != cube.PhasePaused {
		r.Phase, r.EndAt, r.ChangedAt = cube.PhasePaused, time.Time{}, time.Now()
		if err := s.write(ctx, r); err != nil {
			return err
		}
	}
	s.enlist(r)
	return nil
}

func (s *Service) adoptEnd(ctx context.Context, r cube.Record, why cube.Death) error {
	s.log.Warn("a sandbox has ended", "sandbox", r.ID, "phase", r.Phase, "reason", why.Reason, "detail", why.Detail)
	s.bury(ctx, r.ID)
	last := epitaph(r, why)
	if err := s.write(ctx, last); err != nil {
		return err
	}
	if r.Image != "" {
		s.deleteImage(r.Image, r.ID)
	}
	s.ended[r.ID] = last
	return nil
}

// enlist makes it one that can be found. Its timer is set when all is together: what
// is overdue must not act on half of it.
func (s *Service) enlist(r cube.Record) {
	s.boxes[r.ID], s.order = newBox(r), nil
}

// adoptSnapshots does the same for snapshots.
func (s *Service) adoptSnapshots(ctx context.Context) error {
	all, err := s.store.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, snap := range all {
		if snap.State == cube.SnapshotReady && s.published(snap.ID) {
			s.snapshots[snap.ID] = snap
			continue
		}
		if snap.State == cube.SnapshotReady {
			s.log.Warn("a snapshot's files are gone", "image", snap.ID, "sandbox", snap.Source)
		}
		s.deleteImage(snap.ID, snap.Source)
		if err := s.store.DeleteSnapshot(ctx, snap.ID); err != nil {
			return err
		}
	}
	return nil
}

// sweep looks at images that no record names: a snapshot is taken in, for nothing
// is to be lost; what a resumed or killed sandbox was paused to is deleted, if we
// know that sandbox.
func (s *Service) sweep(recs []cube.Record) {
	known, used := map[cube.SandboxID]bool{}, map[cube.ImageID]bool{}
	for _, r := range recs {
		known[r.ID] = true
	}
	for _, b := range s.boxes {
		used[b.rec.Image] = true
	}
	images, err := s.images.Images()
	if err != nil {
		s.log.Warn("not every image can be read", "error", err)
	}
	for _, im := range images {
		_, recorded := s.snapshots[im.ID]
		switch {
		case recorded || used[im.ID] || im.Kind == cube.KindTemplate:
		case im.Kind == cube.KindPause && known[im.Source]:
			s.deleteImage(im.ID, im.Source)
		case im.Kind == cube.KindSnapshot:
			s.takeIn(im)
		default:
			s.log.Warn("an image belongs to no sandbox that is known; it stays", "image", im.ID, "sandbox", im.Source)
		}
	}
}

func (s *Service) takeIn(im cube.Image) {
	s.log.Warn("a snapshot without a record is taken in", "image", im.ID, "sandbox", im.Source)
	snap := cube.Snapshot{
		ID: im.ID, Source: im.Source, State: cube.SnapshotReady, CreatedAt: im.Created, Limits: im.Limits, Bytes: im.Bytes,
	}
	if err := s.putSnapshot(s.ctx, snap); err != nil {
		s.log.Error("a snapshot could not be taken in", "image", im.ID, "error", err)
	}
}

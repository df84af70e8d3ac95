package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cube "cubesandbox"
)

// againAfter is how long a sandbox must have lived since it was brought back for it to
// be brought back again by itself: one that dies at once would do so for ever.
const againAfter = time.Minute

// testament is the record of a sandbox that has died: with all that it needs to be
// brought back if there is a snapshot of it, and that snapshot.
func (s *Service) testament(r cube.Record, why cube.Death) (cube.Record, cube.ImageID) {
	way := s.wayBack(r.ID)
	if way == "" || why.Reason == cube.DeathKilled || why.Reason == cube.DeathTimeout {
		return epitaph(r, why), ""
	}
	// EndAt stays: time does not go back.
	r.Phase, r.Image, r.ChangedAt, r.End, r.Recoverable = cube.PhaseEnded, "", why.At, &why, true
	return r, way
}

// wayBack is the newest snapshot of a sandbox; empty where there is none.
func (s *Service) wayBack(id cube.SandboxID) cube.ImageID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.wayBackLocked(id)
}

func (s *Service) wayBackLocked(id cube.SandboxID) cube.ImageID {
	var newest cube.Snapshot
	for _, snap := range s.snapshots {
		if snap.Source == id && snap.State == cube.SnapshotReady && (newest.ID == "" || newer(snap, newest)) {
			newest = snap
		}
	}
	return newest.ID
}

// waysBack are the snapshots of a sandbox, the newest first.
func (s *Service) waysBack(id cube.SandboxID) []cube.Snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []cube.Snapshot
	for _, snap := range s.snapshots {
		if snap.Source == id && snap.State == cube.SnapshotReady {
			out = append(out, snap)
		}
	}
	slices.SortFunc(out, compareSnapshots)
	return out
}

// Recover implements cube.Service. Where the newest snapshot cannot be restored, the
// next is tried.
func (s *Service) Recover(ctx context.Context, id cube.SandboxID) (r cube.Record, err error) {
	if err := s.awaitEnd(ctx, id); err != nil {
		return cube.Record{}, err
	}
	ways := s.waysBack(id)
	if len(ways) == 0 {
		ways = []cube.Snapshot{{}} // to be told why not
	}
	for i, way := range ways {
		r, err = s.recoverFrom(ctx, id, way.ID)
		if !errors.Is(err, cube.ErrCorrupt) && !errors.Is(err, cube.ErrIncompatible) {
			return r, err
		}
		if i+1 < len(ways) {
			s.log.Error("a snapshot cannot be restored; the one before is tried", "sandbox", id, "image", way.ID, "error", err)
		}
	}
	return r, err
}

func (s *Service) recoverFrom(ctx context.Context, id cube.SandboxID, way cube.ImageID) (cube.Record, error) {
	b, old, err := s.raise(id)
	if err != nil {
		return cube.Record{}, err
	}
	defer b.leave()
	if way == "" {
		s.sink(b, old)
		return cube.Record{}, fmt.Errorf("recover %s: it has no snapshot any more: %w", id, cube.ErrNotFound)
	}
	release, err := s.cpus.reserve(old.Limits.CPUs)
	if err != nil {
		s.sink(b, old)
		return cube.Record{}, fmt.Errorf("recover %s: %w", id, err)
	}
	p := newPlan(cube.VerbRecover, id)
	p.Image = way
	w := s.recovering(p, b, old)
	err = s.start(ctx, b, w, func(r *cube.Record) {
		r.Phase, r.Generation, r.Image, r.Restored = cube.PhaseRecovering, r.Generation+1, way, cube.RestoredMemory
	})
	if err == nil {
		err = s.run(ctx, w)
	} else {
		s.sink(b, old)
	}
	if err != nil {
		release()
		return cube.Record{}, fmt.Errorf("recover %s from %s: %w", id, way, err)
	}
	s.arm(b)
	if err := s.release(way); err != nil { // it may have been deleted meanwhile
		s.log.Error("an image that nothing needs stays until the next collection", "image", way, "error", err)
	}
	return b.record(), w.late
}

// recovering is the work of recover: old is the record of the end.
func (s *Service) recovering(p cube.Plan, b *box, old cube.Record) *work {
	w := &work{Plan: p, from: 1}
	w.steps = []step{
		{name: "restore", do: func(ctx context.Context) error {
			if !s.alive(ctx, b.id) { // its end could not be recorded, and the engine still knows it
				s.bury(ctx, b.id)
			}
			return s.engineResume(ctx, b.rec)
		},
			undo: func(ctx context.Context) { s.bury(ctx, b.id) },
			done: func(ctx context.Context) bool { return s.alive(ctx, b.id) }},
		{name: "record", sure: true, do: func(ctx context.Context) error {
			s.mu.Lock()
			delete(s.ended, b.id)
			s.mu.Unlock()
			return s.settle(ctx, b, w, func(r *cube.Record) {
				s.resumed(ctx, r, cube.Resumption{})
				if old.EndAt.After(time.Now()) {
					r.EndAt = old.EndAt
				}
				r.End, r.Recoverable, r.RecoveredAt = nil, false, time.Now()
			})
		}},
	}
	w.back = func(ctx context.Context) error {
		err := s.settle(ctx, b, w, func(r *cube.Record) { *r = old })
		s.sink(b, old)
		return err
	}
	return w
}

// awaitEnd waits until the end of a sandbox that has died is written.
func (s *Service) awaitEnd(ctx context.Context, id cube.SandboxID) error {
	b, err := s.find(id)
	if err != nil || b.ending() == nil {
		return nil
	}
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// raise makes a sandbox that has ended one that can be found again, with its turn
// taken, or says why that cannot be. It also returns the record of its end.
func (s *Service) raise(id cube.SandboxID) (*box, cube.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.boxes[id]; ok {
		return nil, cube.Record{}, fmt.Errorf("recover: sandbox %s has not ended, it is %s: %w", id, b.route().Phase, cube.ErrConflict)
	}
	old, ok := s.ended[id]
	if !ok {
		return nil, old, s.unknown(id)
	}
	if !old.Recoverable {
		return nil, old, fmt.Errorf("recover: there is no snapshot to go back to, or it was killed: %w", s.unknown(id))
	}
	r := old
	r.Phase = cube.PhaseRecovering // for whoever looks before that is written
	b := newBox(r)
	b.enter()
	s.boxes[id], s.order = b, nil
	return b, old, nil
}

// discardEnded ends the hope for a sandbox that has died and could be recovered: somebody
// kills it. It reports whether there was such a one.
func (s *Service) discardEnded(ctx context.Context, id cube.SandboxID) (bool, error) {
	s.mu.Lock()
	r, ok := s.ended[id]
	if _, back := s.boxes[id]; back || !ok || !r.Recoverable {
		s.mu.Unlock()
		return false, nil
	}
	last := epitaph(r, *r.End)
	s.ended[id] = last
	s.mu.Unlock()
	if err := s.commit(ctx, cube.Batch{Sandboxes: []cube.Record{last}}); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended[id] = r
		return true, fmt.Errorf("kill %s: %w", id, err)
	}
	return true, nil
}

// sink takes back what raise did.
func (s *Service) sink(b *box, old cube.Record) {
	s.retire(b, old)
	// Its last snapshot may have been deleted meanwhile.
	if batch := s.giveUp(b.id); !batch.Empty() {
		if err := s.apply(s.ctx, batch); err != nil {
			s.log.Error("what cannot be recovered any more keeps its secrets until the next start", "sandbox", b.id, "error", err)
		}
	}
}

// autoRecover brings a sandbox back that was to be brought back by itself. It is among
// those that are returning.
func (s *Service) autoRecover(r cube.Record) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.returning, r.ID)
	}()
	switch {
	case r.End.At.Sub(r.RecoveredAt) < againAfter:
		s.log.Warn("a sandbox died soon after it was brought back; it is not tried again", "sandbox", r.ID, "reason", r.End.Reason)
		return
	case !r.EndAt.IsZero() && r.EndAt.Before(time.Now()):
		s.log.Info("a sandbox whose time is over is not brought back by itself", "sandbox", r.ID)
		return
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		_, err := s.Recover(s.ctx, r.ID)
		switch {
		case err == nil:
			s.log.Warn("a sandbox was brought back by itself", "sandbox", r.ID, "reason", r.End.Reason)
			return
		case s.ctx.Err() != nil || errors.Is(err, cube.ErrNotFound) || errors.Is(err, cube.ErrConflict): // somebody has done something else
			return
		case !errors.Is(err, cube.ErrUnavailable) && !errors.Is(err, cube.ErrNoCapacity) && !errors.Is(err, cube.ErrNoSpace):
			s.log.Error("a sandbox could not be brought back", "sandbox", r.ID, "error", err)
			return
		}
		s.log.Warn("a sandbox could not be brought back yet", "sandbox", r.ID, "again", wait, "error", err)
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return
		}
	}
}

// willReturn notes which sandboxes a start brings back by themselves.
func (s *Service) willReturn() (lost []cube.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.ended {
		if r.Recoverable && r.AutoRecover {
			s.returning[r.ID] = true
			lost = append(lost, r)
		}
	}
	return lost
}

// Ended implements cube.Service.
func (s *Service) Ended(context.Context) ([]cube.Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []cube.Record{}
	add := func(r cube.Record) {
		if r.Recoverable {
			r.Image = s.wayBackLocked(r.ID)
		}
		if s.returning[r.ID] {
			r.Phase = cube.PhaseRecovering // as Route says
		}
		r.Identity, r.TrafficToken = cube.Identity{}, ""
		out = append(out, r)
	}
	for id, r := range s.ended {
		if _, back := s.boxes[id]; !back {
			add(r)
		}
	}
	for _, b := range s.boxes {
		if last := b.ending(); last != nil {
			add(*last)
		}
	}
	slices.SortFunc(out, func(a, b cube.Record) int { return b.ChangedAt.Compare(a.ChangedAt) })
	return out, nil
}

// giveUp strips the records of ended sandboxes that cannot be brought back any more,
// for the snapshot that is deleted was their last.
func (s *Service) giveUp(id cube.SandboxID) cube.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.ended[id]
	if !ok || !r.Recoverable || s.wayBackLocked(id) != "" || s.boxes[id] != nil {
		return cube.Batch{}
	}
	last := epitaph(r, *r.End)
	s.ended[id] = last
	return cube.Batch{Sandboxes: []cube.Record{last}}
}

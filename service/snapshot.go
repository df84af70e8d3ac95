package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// longestName bounds the name of a snapshot, in bytes.
const longestName = 128

// Snapshot implements cube.Service.
func (s *Service) Snapshot(ctx context.Context, id cube.SandboxID, o cube.Snapshotting) (snap cube.Snapshot, err error) {
	name, err := snapshotName(o.Name)
	if err != nil {
		return cube.Snapshot{}, err
	}
	err = s.once(ctx, o.Key, cube.VerbSnapshot, []any{id, name}, func(p cube.Plan) error {
		snap, err = s.save(ctx, p, id, name)
		return err
	}, func(a cube.Answer) error {
		var ok bool
		if snap, ok = s.snapshot(a.Image); !ok {
			return fmt.Errorf("snapshot %s: %w", a.Image, cube.ErrNotFound)
		}
		return nil
	})
	return snap, err
}

// save saves a sandbox. What was saved becomes durable afterwards.
func (s *Service) save(ctx context.Context, p cube.Plan, id cube.SandboxID, name string) (cube.Snapshot, error) {
	b, err := s.runner(ctx, id, "snapshot")
	if err != nil {
		return cube.Snapshot{}, err
	}
	defer b.leave()
	snap := cube.Snapshot{
		ID: cube.NewSnapshotID(), Name: name, Source: id, Template: b.rec.Template, State: cube.SnapshotCreating,
		CreatedAt: time.Now(), Limits: b.rec.Limits, Env: b.rec.Identity.Env,
	}
	p.Sandbox, p.Image = id, snap.ID
	w := s.saving(p, snap)
	if err := s.begin(ctx, w, cube.Batch{Snapshots: []cube.Snapshot{snap}}); err != nil {
		return cube.Snapshot{}, fmt.Errorf("snapshot of %s: write its record: %w", id, err)
	}
	if err := s.run(ctx, w); err != nil {
		return cube.Snapshot{}, s.orDead(ctx, b, fmt.Errorf("snapshot of %s: %w", id, err))
	}
	s.spawn(func() { s.harden(p.Image) })
	snap, _ = s.snapshot(snap.ID)
	return snap, nil
}

// saving is the work of snapshot.
func (s *Service) saving(p cube.Plan, snap cube.Snapshot) *work {
	w := &work{Plan: p, from: never}
	if p.Key != "" {
		w.from = 1 // whoever asks again gets it
	}
	w.steps = []step{
		{name: "save", do: func(ctx context.Context) error { return s.engineSave(ctx, p.Sandbox, p.Image) },
			undo: func(context.Context) { s.deleteImage(p.Image, p.Sandbox) },
			done: func(context.Context) bool { return s.saved(p.Image) }},
		{name: "record", do: func(ctx context.Context) error {
			if err := ctx.Err(); err != nil && p.Key == "" {
				return err // nobody will ever hear of it
			}
			im, err := s.images.Image(p.Image)
			if err != nil {
				return err
			}
			ready := snap
			ready.State, ready.Bytes = cube.SnapshotReady, im.Bytes
			if err := s.commit(ctx, w.answered(cube.Batch{Snapshots: []cube.Snapshot{ready}}, cube.Answer{Image: ready.ID})); err != nil {
				return err
			}
			s.know(ready)
			return nil
		}},
	}
	w.back = func(ctx context.Context) error {
		return s.apply(ctx, s.unanswered(w, cube.Batch{DropSnapshots: []cube.ImageID{p.Image}}))
	}
	return w
}

// know makes a snapshot one that can be found, as its state says.
func (s *Service) know(snap cube.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[snap.ID] = snap
}

// longestHarden is how long to wait at most before what could not be made durable is
// tried again.
const longestHarden = 5 * time.Minute

// harden makes a published snapshot durable, however long that takes.
func (s *Service) harden(id cube.ImageID) {
	for wait := time.Second; ; wait = min(2*wait, longestHarden) {
		err := s.hardenOnce(id)
		if err == nil || errors.Is(err, cube.ErrNotFound) || s.ctx.Err() != nil {
			return
		}
		if errors.Is(err, cube.ErrCorrupt) {
			s.log.Error("a snapshot will never be durable: what was saved cannot be read back; delete it and take another", "image", id, "error", err)
			return
		}
		s.log.Error("a snapshot is not durable yet; it is tried again", "image", id, "again", wait, "error", err)
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Service) hardenOnce(id cube.ImageID) error {
	if err := s.images.Sync(s.ctx, id); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	snap, ok := s.snapshot(id)
	if !ok || snap.Durable {
		return nil // a template, or it is being deleted
	}
	snap.Durable = true
	if err := s.commit(s.ctx, cube.Batch{Snapshots: []cube.Snapshot{snap}}); err != nil {
		return err
	}
	s.know(snap)
	return nil
}

// snapshotName checks a name and takes its tag off.
func snapshotName(name string) (string, error) {
	name = strings.TrimSuffix(name, ":default")
	if name == "" {
		return "", nil
	}
	if len(name) > longestName || name != bare(name) || strings.IndexFunc(name, notInName) >= 0 {
		return "", fmt.Errorf("snapshot name %q: want up to %d letters, digits, '-', '_' or '.': %w", name, longestName, cube.ErrInvalid)
	}
	if _, err := cube.ParseImageID(name); err == nil {
		return "", fmt.Errorf("snapshot name %q looks like an id: %w", name, cube.ErrInvalid)
	}
	return name, nil
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

func (s *Service) engineSave(ctx context.Context, id cube.SandboxID, image cube.ImageID) error {
	defer timing.Phase(ctx, "engine")()
	_, err := s.engine.Save(ctx, id, image)
	return err
}

// compareSnapshots orders them, newest first.
func compareSnapshots(a, b cube.Snapshot) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

// Snapshots implements cube.Service.
func (s *Service) Snapshots(_ context.Context, q cube.SnapshotQuery) (cube.SnapshotPage, error) {
	after, err := parseCursor(q.Cursor, true)
	if err != nil {
		return cube.SnapshotPage{}, err
	}
	name := bare(q.Name)
	s.mu.RLock()
	fit := []cube.Snapshot{}
	for _, snap := range s.snapshots {
		if snap.State == cube.SnapshotReady && (q.Source == "" || snap.Source == q.Source) && (name == "" || snap.Name == name) {
			fit = append(fit, snap)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(fit, compareSnapshots)
	at := func(snap cube.Snapshot) cursor { return cursor{snap.CreatedAt, string(snap.ID), true} }
	page, next := cut(fit, at, after, q.Limit)
	return cube.SnapshotPage{Snapshots: page, Next: next}, nil
}

// Rollback implements cube.Service.
func (s *Service) Rollback(ctx context.Context, id cube.SandboxID, snapshot string) (cube.Record, error) {
	snap, err := s.findSnapshot(snapshot)
	if err != nil {
		return cube.Record{}, err
	}
	b, err := s.runner(ctx, id, "rollback")
	if err != nil {
		return cube.Record{}, err
	}
	defer b.leave()
	if snap.Source != id && b.rec.Template != snap.ID {
		return cube.Record{}, fmt.Errorf("rollback conflict: %s is a snapshot of %s, not of %s; create a sandbox from it instead: %w",
			snap.ID, snap.Source, id, cube.ErrConflict)
	}
	p := newPlan(cube.VerbRollback, id)
	p.Image = snap.ID
	w := s.rolling(p, b, b.rec.Generation)
	if err := s.start(ctx, b, w, func(r *cube.Record) { r.Phase = cube.PhaseRollingBack }); err != nil {
		return cube.Record{}, err
	}
	if err := s.run(ctx, w); err != nil {
		return cube.Record{}, s.orDead(ctx, b, fmt.Errorf("rollback of %s to %s: %w", id, snap.ID, err))
	}
	return b.record(), w.late
}

// rolling is the work of rollback: the engine says which life came out of it.
func (s *Service) rolling(p cube.Plan, b *box, was cube.Generation) *work {
	w := &work{Plan: p, from: 1}
	record := func(ctx context.Context) error {
		return s.settle(ctx, b, w, func(r *cube.Record) {
			r.Phase = cube.PhaseRunning
			if sb, err := s.engine.Sandbox(ctx, b.id); err == nil && sb.Generation > r.Generation {
				r.Generation, r.Restored = sb.Generation, cube.RestoredMemory
				s.freePages() // that the life before had memory in
			}
		})
	}
	w.steps = []step{
		{name: "restore", do: func(ctx context.Context) error { return s.engineRollback(ctx, b.id, p.Image) },
			done: func(ctx context.Context) bool {
				sb, err := s.engine.Sandbox(ctx, b.id)
				return err == nil && sb.Generation > was
			}},
		{name: "record", sure: true, do: record},
	}
	w.back = record
	return w
}

func (s *Service) engineRollback(ctx context.Context, id cube.SandboxID, image cube.ImageID) error {
	defer timing.Phase(ctx, "engine")()
	_, err := s.engine.Rollback(ctx, id, image)
	return err
}

func (s *Service) findSnapshot(idOrName string) (cube.Snapshot, error) {
	name := bare(idOrName)
	if id, err := cube.ParseImageID(name); err == nil {
		if snap, ok := s.snapshot(id); ok {
			return snap, nil
		}
	} else if snap, ok := s.newestNamed(name); ok {
		return snap, nil
	}
	return cube.Snapshot{}, fmt.Errorf("snapshot %q: %w", idOrName, cube.ErrNotFound)
}

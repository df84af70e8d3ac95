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
func (s *Service) Snapshot(ctx context.Context, id cube.SandboxID, name string) (cube.Snapshot, error) {
	name, err := snapshotName(name)
	if err != nil {
		return cube.Snapshot{}, err
	}
	b, err := s.runner(ctx, id, "snapshot")
	if err != nil {
		return cube.Snapshot{}, err
	}
	defer b.leave()
	snap := cube.Snapshot{
		ID: cube.NewSnapshotID(), Name: name, Source: id, Template: b.rec.Template, State: cube.SnapshotCreating,
		CreatedAt: time.Now(), Limits: b.rec.Limits, Env: b.rec.Identity.Env,
	}
	if err := s.putSnapshot(ctx, snap); err != nil {
		return cube.Snapshot{}, err
	}
	im, err := s.engineSave(ctx, id, snap.ID)
	if err == nil && ctx.Err() != nil { // nobody will ever hear of it
		err = ctx.Err()
		s.deleteImage(snap.ID, id)
	}
	if err != nil {
		s.dropSnapshot(ctx, snap.ID)
		return cube.Snapshot{}, s.orDead(ctx, b, fmt.Errorf("snapshot of %s: %w", id, err))
	}
	snap.State, snap.Bytes = cube.SnapshotReady, im.Bytes
	if err := s.putSnapshot(context.WithoutCancel(ctx), snap); err != nil {
		s.deleteImage(snap.ID, id)
		s.dropSnapshot(ctx, snap.ID)
		return cube.Snapshot{}, err
	}
	return snap, nil
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

func (s *Service) engineSave(ctx context.Context, id cube.SandboxID, image cube.ImageID) (cube.Image, error) {
	defer timing.Phase(ctx, "engine")()
	return s.engine.Save(ctx, id, image)
}

func (s *Service) putSnapshot(ctx context.Context, snap cube.Snapshot) error {
	defer timing.Phase(ctx, "store")()
	if err := s.store.PutSnapshot(ctx, snap); err != nil {
		return fmt.Errorf("write the record of snapshot %s: %w", snap.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[snap.ID] = snap
	return nil
}

func (s *Service) dropSnapshot(ctx context.Context, id cube.ImageID) {
	if err := s.store.DeleteSnapshot(context.WithoutCancel(ctx), id); err != nil {
		s.log.Error("the record of a snapshot stays until the next start", "image", id, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.snapshots, id)
}

// deleteSnapshot hides a snapshot at once, then frees it.
func (s *Service) deleteSnapshot(ctx context.Context, id cube.ImageID) error {
	s.mu.Lock()
	snap, ok := s.snapshots[id]
	if ok = ok && snap.State == cube.SnapshotReady; ok {
		snap.State = cube.SnapshotDeleting
		s.snapshots[id] = snap
	}
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("snapshot %s: %w", id, cube.ErrNotFound)
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.putSnapshot(ctx, snap); err != nil {
		s.unhide(snap)
		return err
	}
	if err := s.images.Delete(id); err != nil && !errors.Is(err, cube.ErrNotFound) {
		s.log.Error("a deleted snapshot's files stay until the next start", "image", id, "error", err)
		return nil
	}
	s.dropSnapshot(ctx, id)
	return nil
}

func (s *Service) unhide(snap cube.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.State = cube.SnapshotReady
	s.snapshots[snap.ID] = snap
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
	if err := s.put(ctx, b, func(r *cube.Record) { r.Phase = cube.PhaseRollingBack }); err != nil {
		return cube.Record{}, err
	}
	made, err := s.engineRollback(ctx, id, snap.ID)
	if err != nil {
		s.settle(ctx, b, func(r *cube.Record) { r.Phase = cube.PhaseRunning })
		return cube.Record{}, s.orDead(ctx, b, fmt.Errorf("rollback of %s to %s: %w", id, snap.ID, err))
	}
	s.settle(ctx, b, func(r *cube.Record) { r.Phase, r.Generation = cube.PhaseRunning, made.Generation })
	return b.record(), nil
}

func (s *Service) engineRollback(ctx context.Context, id cube.SandboxID, image cube.ImageID) (cube.Sandbox, error) {
	defer timing.Phase(ctx, "engine")()
	return s.engine.Rollback(ctx, id, image)
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

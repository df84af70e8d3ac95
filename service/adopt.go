package service

import (
	"context"
	"errors"
	"maps"
	"slices"

	cube "cubesandbox"
)

// adoptSnapshots forgets snapshots whose files are gone.
func (s *Service) adoptSnapshots(ctx context.Context) {
	for id, snap := range s.snapshots {
		if s.published(id) || s.hidden[id] {
			continue
		}
		if snap.State == cube.SnapshotReady {
			s.log.Warn("a snapshot's files are gone", "image", id, "sandbox", snap.Source)
		}
		s.deleteImage(id, snap.Source)
		s.forgetImage(id)
		b := s.giveUp(snap.Source)
		b.DropSnapshots = []cube.ImageID{id}
		if err := s.apply(ctx, b); err != nil {
			s.log.Error("that a snapshot is gone could not be recorded; the next start does", "image", id, "error", err)
		}
	}
}

// takeInAll makes snapshots that no record names known: nothing is to be lost.
func (s *Service) takeInAll() {
	images, err := s.images.Images()
	if err != nil {
		s.log.Warn("not every image can be read", "error", err)
	}
	for _, im := range images {
		_, recorded := s.snapshots[im.ID]
		switch {
		case recorded || im.Kind == cube.KindTemplate:
		case im.Kind == cube.KindSnapshot:
			s.takeIn(im)
		case !s.stray(im) && s.boxes[im.Source] == nil:
			s.log.Warn("an image belongs to no sandbox that is known; it stays", "image", im.ID, "sandbox", im.Source)
		}
	}
}

func (s *Service) takeIn(im cube.Image) {
	s.log.Warn("a snapshot without a record is taken in", "image", im.ID, "sandbox", im.Source)
	snap := cube.Snapshot{
		ID: im.ID, Source: im.Source, State: cube.SnapshotReady, CreatedAt: im.Created, Limits: im.Limits, Bytes: im.Bytes,
	}
	if err := s.apply(s.ctx, cube.Batch{Snapshots: []cube.Snapshot{snap}}); err != nil {
		s.log.Error("a snapshot could not be taken in", "image", im.ID, "error", err)
		return
	}
	s.know(snap)
}

// forgetTorn forgets snapshots that were not durable yet when the machine stopped, and
// are not whole: nobody is to be brought back to them, and their keys make others.
func (s *Service) forgetTorn(ctx context.Context) {
	unread, err := s.images.Unverified()
	if err != nil {
		s.log.Error("which images are to be verified cannot be told", "error", err)
	}
	for id, snap := range s.snapshots {
		im, err := s.images.Image(id)
		if snap.State != cube.SnapshotReady || snap.Durable || s.hidden[id] || err == nil && (im.Durable || !slices.Contains(unread, id)) {
			continue
		}
		if err = s.images.Verify(ctx, id); !errors.Is(err, cube.ErrCorrupt) {
			continue
		}
		s.log.Warn("a snapshot was not durable yet when the machine stopped, and is lost", "image", id, "sandbox", snap.Source, "error", err)
		s.deleteImage(id, snap.Source)
		s.forgetImage(id)
		if err := s.apply(ctx, cube.Batch{DropSnapshots: []cube.ImageID{id}, DropAnswers: s.keysOf(id)}); err != nil {
			s.log.Error("that could not be recorded; the next start does", "image", id, "error", err)
		}
	}
}

// giveUpAll strips what no snapshot is left for.
func (s *Service) giveUpAll(ctx context.Context) error {
	var b cube.Batch
	s.mu.RLock()
	all := slices.Collect(maps.Keys(s.ended))
	s.mu.RUnlock()
	for _, id := range all {
		b.Sandboxes = append(b.Sandboxes, s.giveUp(id).Sandboxes...)
	}
	if b.Empty() {
		return nil
	}
	return s.apply(ctx, b)
}

package service

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
)

// DeleteImage implements cube.Service.
func (s *Service) DeleteImage(ctx context.Context, idOrName string) error {
	src, err := s.resolve(idOrName)
	if err != nil {
		return err
	}
	p := newPlan(cube.VerbDelete, "")
	p.Image = src.image
	if src.image.IsTemplate() {
		return s.deleteTemplate(ctx, p)
	}
	return s.deleteSnapshot(ctx, p)
}

// deleteTemplate hides a template at once, and takes its names away. Its files go when
// nothing uses them.
func (s *Service) deleteTemplate(ctx context.Context, p cube.Plan) error {
	w := s.deleting(p)
	if err := s.begin(ctx, w, cube.Batch{}); err != nil {
		if !errors.Is(err, cube.ErrNoSpace) {
			return fmt.Errorf("delete template %s: %w", p.Image, err)
		}
		// A full disk must not keep anybody from deleting.
		s.log.Error("a deletion could not be recorded beforehand", "image", p.Image, "error", err)
	}
	if err := s.run(ctx, w); err != nil {
		return fmt.Errorf("delete template %s: %w", p.Image, err)
	}
	s.refreshPools()
	return nil
}

// unname takes the names of a template away.
func (s *Service) unname(id cube.ImageID) error {
	names, err := s.names.Names()
	errs := []error{err}
	for name, of := range names {
		if of == id {
			errs = append(errs, s.names.RemoveName(name))
		}
	}
	return errors.Join(errs...)
}

// deleteSnapshot hides a snapshot at once. Its files go when nothing uses them.
func (s *Service) deleteSnapshot(ctx context.Context, p cube.Plan) error {
	w := s.deleting(p)
	if err := s.condemnSnapshot(ctx, w); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", p.Image, err)
	}
	if err := s.run(ctx, w); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", p.Image, err)
	}
	return nil
}

// condemnSnapshot begins a deletion: from here on nobody finds the snapshot.
func (s *Service) condemnSnapshot(ctx context.Context, w *work) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	snap, ok := s.snapshot(w.Image)
	if !ok {
		return cube.ErrNotFound
	}
	snap.State = cube.SnapshotDeleting
	err := s.begin(ctx, w, cube.Batch{Snapshots: []cube.Snapshot{snap}})
	if errors.Is(err, cube.ErrNoSpace) {
		// A full disk must not keep anybody from deleting.
		s.log.Error("a deletion could not be recorded beforehand", "image", w.Image, "error", err)
		err = nil
	}
	if err == nil {
		s.know(snap)
	}
	return err
}

// deleting is the work of delete. A start finishes it.
func (s *Service) deleting(p cube.Plan) *work {
	w := &work{Plan: p}
	w.steps = []step{
		{name: "hide", do: func(context.Context) error {
			if s.madeAgain(p) {
				return nil
			}
			return s.hide(p.Image)
		}, done: func(context.Context) bool { return !s.published(p.Image) || s.madeAgain(p) }},
		{name: "unname", sure: true, do: func(context.Context) error {
			if !p.Image.IsTemplate() || s.madeAgain(p) {
				return nil
			}
			return s.unname(p.Image)
		}},
		{name: "free", sure: true, do: func(ctx context.Context) error {
			b := w.end(s.giveUpAfter(p.Image))
			if s.uses(p.Image) > 0 {
				s.log.Info("a deleted image is in use; its files go with the last sandbox", "image", p.Image)
				return s.commit(ctx, b)
			}
			// What cannot be freed now, the next collection frees.
			return errors.Join(s.discard(p.Image), s.commit(ctx, b))
		}},
	}
	w.back = func(ctx context.Context) error { // it is not hidden
		b := cube.Batch{}
		s.mu.Lock()
		if snap, ok := s.snapshots[p.Image]; ok {
			snap.State = cube.SnapshotReady
			s.snapshots[p.Image] = snap
			b.Snapshots = append(b.Snapshots, snap)
		}
		s.mu.Unlock()
		return s.apply(ctx, w.end(b))
	}
	return w
}

// madeAgain reports whether a template was built again since its deletion began: the
// same content has the same id.
func (s *Service) madeAgain(p cube.Plan) bool {
	im, err := s.images.Image(p.Image)
	return err == nil && im.Created.After(p.BeganAt)
}

// hide makes an image one that nobody finds. Where there is no room for that note and
// nothing uses the image, it is deleted at once.
func (s *Service) hide(id cube.ImageID) error {
	err := s.images.Hide(id)
	if errors.Is(err, cube.ErrNotFound) {
		return nil
	}
	if errors.Is(err, cube.ErrNoSpace) && s.uses(id) == 0 {
		err = s.images.Delete(id)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[id] = true
	return nil
}

func (s *Service) forgetImage(id cube.ImageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.snapshots, id)
	delete(s.hidden, id)
}

// giveUpAfter is giveUp for the sandbox that a deleted snapshot is of.
func (s *Service) giveUpAfter(id cube.ImageID) cube.Batch {
	s.mu.RLock()
	source := s.snapshots[id].Source
	s.mu.RUnlock()
	return s.giveUp(source)
}

// uses counts the sandboxes that an image is kept for: those that were made from it,
// clones of these, and one that is paused to it.
func (s *Service) uses(id cube.ImageID) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, b := range s.boxes {
		b.mu.Lock()
		if !b.gone && (b.rec.Template == id || b.rec.Image == id) {
			n++
		}
		b.mu.Unlock()
	}
	return n
}

// release frees an image that was deleted, if the last that used it has just ended.
func (s *Service) release(id cube.ImageID) error {
	defer s.freePages()
	s.mu.RLock()
	hidden := s.hidden[id]
	s.mu.RUnlock()
	if !hidden || s.uses(id) > 0 {
		return nil
	}
	return s.discard(id)
}

// discard frees a deleted image and its record. One that was made again in the
// meantime stays.
func (s *Service) discard(id cube.ImageID) error {
	err := s.images.DeleteHidden(id)
	if err != nil && !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrConflict) {
		return err
	}
	s.forgetImage(id)
	return s.apply(s.ctx, cube.Batch{DropSnapshots: []cube.ImageID{id}})
}

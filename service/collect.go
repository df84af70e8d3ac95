package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	cube "cubesandbox"
)

// collectEvery is how often garbage is looked for, where nothing else is said.
const collectEvery = 10 * time.Minute

// foldPerSecond is how much is read and written for a fold, where nothing else is said,
// in bytes.
const foldPerSecond = 32 << 20

// Collector frees a kind of garbage that it knows of, or, dry, only says what it would.
type Collector interface {
	Collect(ctx context.Context, dry bool) ([]cube.Garbage, error)
}

// Collect implements cube.Service.
func (s *Service) Collect(ctx context.Context, dry bool) ([]cube.Garbage, error) {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	out, err := s.collectImages(dry)
	errs := []error{err}
	// Images first: what they need is garbage only after them.
	for _, c := range append([]Collector{s.images}, s.conf.Collectors...) {
		more, err := c.Collect(ctx, dry)
		out, errs = append(out, more...), append(errs, err)
	}
	for _, g := range out {
		if !dry {
			s.log.Info("garbage is collected", "kind", g.Kind, "name", g.Name, "bytes", g.Bytes, "why", g.Why)
		}
	}
	return out, errors.Join(errs...)
}

// Spaces implements cube.Service.
func (s *Service) Spaces(context.Context) map[cube.ImageID]cube.Space { return s.images.Spaces() }

func (s *Service) collect() {
	if _, err := s.Collect(s.ctx, false); err != nil && s.ctx.Err() == nil {
		s.log.Error("garbage could not be collected", "error", err)
	}
}

// collectImages frees deleted images that nothing uses, and what a resumed or killed
// sandbox was paused to.
func (s *Service) collectImages(dry bool) ([]cube.Garbage, error) {
	hidden, err := s.images.Hidden()
	if err != nil {
		return nil, fmt.Errorf("collect images: %w", err)
	}
	out := []cube.Garbage{}
	var errs []error
	spaces := s.images.Spaces()
	free := func(id cube.ImageID, bytes int64, why string, discard func(cube.ImageID) error) {
		if !dry {
			if err := discard(id); err != nil && !errors.Is(err, cube.ErrNotFound) {
				errs = append(errs, err)
				return
			}
		}
		out = append(out, cube.Garbage{Kind: cube.GarbageImage, Name: string(id), Bytes: bytes, Why: why})
	}
	for _, id := range hidden {
		s.mu.Lock()
		s.hidden[id] = true
		s.mu.Unlock()
		if s.uses(id) == 0 {
			free(id, spaces[id].Unique, whyFree(spaces[id].Users), s.discard)
		}
	}
	images, err := s.images.Images()
	if err != nil {
		s.log.Warn("not every image can be read", "error", err)
	}
	for _, im := range images {
		if im.Kind == cube.KindPause && s.stray(im) {
			free(im.ID, im.Bytes, fmt.Sprintf("sandbox %s was paused to it, and is not any more", im.Source), s.images.Delete)
		}
	}
	return out, errors.Join(errs...)
}

// whyFree says why a deleted image is garbage, and what of it stays.
func whyFree(users []cube.ImageID) string {
	if len(users) == 0 {
		return "it was deleted, and nothing uses it any more"
	}
	return fmt.Sprintf("it was deleted, and no sandbox uses it any more; its pages stay: %s has memory in them%s", users[0], andMore(len(users)-1))
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// foldAgain folds from time to time. It has a life of its own: a fold takes its time, and
// nothing waits for it.
func (s *Service) foldAgain() {
	tick := time.NewTicker(s.conf.CollectEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		done, err := s.images.Fold(s.ctx, s.conf.FoldPerSecond)
		if done.Images > 0 {
			s.log.Info("memory in mostly dead pages is copied together", "images", done.Images, "copied", done.Copied, "freed", done.Freed)
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("memory in mostly dead pages could not be copied together", "error", err)
		}
	}
}

// freePages frees, behind the end of a sandbox, what it was the last to need.
func (s *Service) freePages() {
	s.spawn(func() {
		if err := s.images.FreePages(); err != nil {
			s.log.Error("pages of deleted images could not be freed", "error", err)
		}
	})
}

// stray reports whether a pause image is that of a sandbox which is known, and is not
// paused to it. Those of sandboxes that nobody knows stay: they may be all that
// somebody has.
func (s *Service) stray(im cube.Image) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.plans {
		if w.Image == im.ID {
			return false
		}
	}
	if b, ok := s.boxes[im.Source]; ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.rec.Image != im.ID
	}
	_, ended := s.ended[im.Source]
	return ended
}

// VerifyImage implements cube.Service.
func (s *Service) VerifyImage(ctx context.Context, idOrName string) (cube.Image, error) {
	src, err := s.resolve(idOrName)
	if err != nil {
		return cube.Image{}, err
	}
	if err := s.images.Verify(ctx, src.image); err != nil {
		return cube.Image{}, err
	}
	return s.images.Image(src.image)
}

// examine makes durable what is not, after a start, and looks at what was written
// before the machine was last started. What never was durable and is torn is no
// snapshot: nobody was promised that it would be there.
func (s *Service) examine() {
	images, err := s.images.Images()
	if err != nil {
		s.log.Error("not every image can be read", "error", err)
	}
	unread, err := s.images.Unverified()
	if err != nil {
		s.log.Error("which images are to be verified cannot be told", "error", err)
	}
	known := map[cube.ImageID]bool{}
	for _, im := range images {
		known[im.ID] = true
		s.examineOne(im.ID, im.Durable, slices.Contains(unread, im.ID))
	}
	// Those whose manifest cannot be read are in the records alone.
	s.mu.RLock()
	snaps := slices.Collect(maps.Values(s.snapshots))
	s.mu.RUnlock()
	for _, snap := range snaps {
		if snap.State == cube.SnapshotReady && !known[snap.ID] {
			s.examineOne(snap.ID, snap.Durable, true)
		}
	}
}

func (s *Service) examineOne(id cube.ImageID, durable, read bool) {
	if s.ctx.Err() != nil {
		return
	}
	var err error
	if read {
		err = s.images.VerifyOnce(s.ctx, id)
	}
	_, isSnapshot := s.snapshot(id)
	switch {
	case err == nil:
		// It may be so, and not recorded.
		if s.hardenOnce(id) != nil {
			s.spawn(func() { s.harden(id) })
		}
	case errors.Is(err, cube.ErrNotFound) || s.ctx.Err() != nil:
	case errors.Is(err, cube.ErrCorrupt) && isSnapshot && !durable:
		s.log.Warn("a snapshot was not durable yet when the machine stopped, and is lost", "image", id, "error", err)
		if err := s.DeleteImage(s.ctx, string(id)); err != nil {
			s.log.Error("it could not be deleted", "image", id, "error", err)
		}
	default:
		s.log.Error("an image is damaged", "image", id, "error", err)
	}
}

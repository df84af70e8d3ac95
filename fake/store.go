package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"

	cube "cubesandbox"
)

// Store is the images of a machine in the form in which an image store gives them.
type Store struct{ Machine *Machine }

// Images returns all that are not hidden.
func (s Store) Images() ([]cube.Image, error) {
	s.Machine.mu.Lock()
	defer s.Machine.mu.Unlock()
	var out []cube.Image
	for id, img := range s.Machine.images {
		if !s.Machine.hidden[id] {
			out = append(out, img.Image)
		}
	}
	return out, nil
}

// Image returns one that is not hidden.
func (s Store) Image(id cube.ImageID) (cube.Image, error) {
	img, err := s.find(id)
	if err != nil {
		return cube.Image{}, err
	}
	if img.unread {
		return cube.Image{ID: id, Durable: img.Durable}, &cube.CorruptError{Image: id, File: "manifest", Detail: "it is empty"}
	}
	return img.Image, nil
}

func (s Store) find(id cube.ImageID) (*image, error) {
	s.Machine.mu.Lock()
	defer s.Machine.mu.Unlock()
	img := s.Machine.images[id]
	if img == nil || s.Machine.hidden[id] {
		return nil, fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
	}
	return img, nil
}

// Hide makes one that nobody finds any more.
func (s Store) Hide(id cube.ImageID) error {
	if _, err := s.find(id); err != nil {
		return err
	}
	s.Machine.mu.Lock()
	defer s.Machine.mu.Unlock()
	s.Machine.hidden[id] = true
	return nil
}

// Hidden returns those that are.
func (s Store) Hidden() ([]cube.ImageID, error) {
	s.Machine.mu.Lock()
	defer s.Machine.mu.Unlock()
	return slices.Sorted(maps.Keys(s.Machine.hidden)), nil
}

// Delete removes one, hidden or not.
func (s Store) Delete(id cube.ImageID) error { return s.Machine.DeleteImage(id) }

// DeleteHidden is Delete, but ErrConflict where it is not hidden.
func (s Store) DeleteHidden(id cube.ImageID) error {
	if _, err := s.find(id); err == nil {
		return fmt.Errorf("image %s is not hidden: %w", id, cube.ErrConflict)
	}
	return s.Machine.DeleteImage(id)
}

// Unverified returns all: nothing is noted of what was read.
func (s Store) Unverified() ([]cube.ImageID, error) {
	s.Machine.mu.Lock()
	defer s.Machine.mu.Unlock()
	return slices.Sorted(maps.Keys(s.Machine.images)), nil
}

// Sync makes one durable.
func (s Store) Sync(_ context.Context, id cube.ImageID) error {
	if _, err := s.find(id); err != nil {
		return err
	}
	return s.Machine.changeImage(id, func(img *image) { img.Durable = true })
}

// Verify compares one with what was saved.
func (s Store) Verify(_ context.Context, id cube.ImageID) error {
	img, err := s.find(id)
	if err != nil {
		return err
	}
	if got := sum(img.state); got != img.sum {
		return img.check()
	}
	return nil
}

// VerifyOnce is Verify.
func (s Store) VerifyOnce(ctx context.Context, id cube.ImageID) error { return s.Verify(ctx, id) }

// Spaces says that each stands alone.
func (s Store) Spaces() map[cube.ImageID]cube.Space {
	s.Machine.mu.Lock()
	defer s.Machine.mu.Unlock()
	out := map[cube.ImageID]cube.Space{}
	for id, img := range s.Machine.images {
		out[id] = cube.Space{Unique: img.Bytes}
	}
	return out
}

// FreePages frees nothing: no image has memory in another.
func (s Store) FreePages() error { return nil }

// Fold does nothing, for the same reason.
func (s Store) Fold(context.Context, int64) (cube.Folded, error) { return cube.Folded{}, nil }

// Collect frees nothing: there is no garbage in memory.
func (s Store) Collect(context.Context, bool) ([]cube.Garbage, error) { return nil, nil }

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	cube "cubesandbox"
)

// MaxBases is how many bases an image can have. A sandbox whose pages lie in more is
// saved with some of them written out.
const MaxBases = 16

// baseDir is where the pages of a deleted image stay that others need.
func (s *Store) baseDir(id cube.BaseID) string { return filepath.Join(s.basesDir(), string(id)) }

// bases are those of deleted images, ordered.
func (s *Store) bases() ([]cube.BaseID, error) {
	entries, err := os.ReadDir(s.basesDir()) // sorted
	if err != nil {
		return nil, unavailable(err)
	}
	var ids []cube.BaseID
	for _, e := range entries {
		if id, err := cube.ParseBaseID(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// base opens the directory that has the pages of a base: that of its image, hidden or
// not, or where they stay when that is deleted. The manifest names what must be there;
// nothing, if it is loose: see KeepBase.
func (s *Store) base(id cube.BaseID) (*directory, manifest, error) {
	if _, err := cube.ParseBaseID(string(id)); err != nil {
		return nil, manifest{}, err
	}
	// An image moves from the first place to the second, and never back.
	d, m, err := s.baseAt(s.Dir(id.Image()), id)
	if !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrCorrupt) {
		return d, m, err
	}
	d, m, later := s.baseAt(s.baseDir(id), id)
	if errors.Is(later, cube.ErrNotFound) {
		return nil, manifest{}, err // what is damaged may have been it
	}
	return d, m, later
}

// Present are those of some bases of which there is something.
func (s *Store) Present(ids []cube.BaseID) []cube.BaseID {
	return slices.DeleteFunc(slices.Clone(ids), func(id cube.BaseID) bool {
		d, _, err := s.base(id)
		if err == nil {
			d.Close()
		}
		return errors.Is(err, cube.ErrNotFound)
	})
}

func (s *Store) baseAt(path string, id cube.BaseID) (_ *directory, m manifest, err error) {
	d, err := s.directoryAt(path, id.Image())
	if err != nil {
		return nil, manifest{}, err
	}
	parked := path == s.baseDir(id)
	loose := false
	if parked {
		loose, err = d.loose()
	}
	switch {
	case err != nil:
	case loose:
		m.Image = cube.Image{ID: d.id, Base: id}
	default:
		m, err = d.anyManifest()
	}
	if err == nil && m.Image.Base != id {
		err = fmt.Errorf("base %s: %w", id, cube.ErrNotFound)
	}
	if err != nil {
		d.Close()
		return nil, manifest{}, err
	}
	if parked {
		m.Image.Bases, m.BaseBytes = nil, nil
		m.Files = slices.DeleteFunc(slices.Clone(m.Files), func(f fileSum) bool { return !m.stays(f.Name) })
	}
	return d, m, nil
}

// stays reports whether a file is one of those that others need.
func (m manifest) stays(name string) bool {
	return name == pagesName || m.Image.Kind == cube.KindBase && isSources(name)
}

// loose reports whether it has no manifest: pages that were never summed.
func (d *directory) loose() (bool, error) {
	for _, name := range []string{manifestName, hiddenName} {
		if has, err := d.has(name); has || err != nil {
			return false, err
		}
	}
	return true, nil
}

// anyManifest is the manifest of an image that is published or hidden.
func (d *directory) anyManifest() (manifest, error) {
	m, err := d.manifest(manifestName)
	if errors.Is(err, cube.ErrNotFound) {
		m, err = d.manifest(hiddenName)
	}
	return m, err
}

// heldBase is a base that is in use: its pages stay until they are closed, by all to
// whom they were handed on.
type heldBase struct {
	d     *directory
	m     manifest
	pages *os.File
}

func (b *heldBase) close() {
	b.d.Close()
	b.pages.Close()
}

// holdBase opens the pages of a base, unread.
func (s *Store) holdBase(id cube.BaseID) (*heldBase, error) {
	for {
		d, m, err := s.base(id)
		if err != nil {
			return nil, err
		}
		f, err := d.open(pagesName)
		if err != nil {
			d.Close()
			return nil, err
		}
		there, err := lockPages(f)
		if err == nil && there {
			return &heldBase{d, m, f}, nil
		}
		f.Close()
		d.Close()
		if err != nil {
			return nil, err
		}
		// It was freed while we waited.
	}
}

// lockPages makes pages ones that are in use: their open file description holds a
// shared flock, which a sentry inherits, and by its mapping keeps to its end. false:
// they have been removed.
func lockPages(f *os.File) (there bool, err error) {
	if err := flock(f, syscall.LOCK_SH); err != nil {
		return false, unavailable(err)
	}
	fi, err := f.Stat()
	if err != nil {
		return false, unavailable(err)
	}
	return fi.Sys().(*syscall.Stat_t).Nlink > 0, nil
}

// Base is an image in whose pages a part of another's memory lies.
type Base struct {
	ID    cube.BaseID
	Pages *os.File
}

// openBase opens the pages of a base of an image, verified as its own files are.
func (s *Store) openBase(ctx context.Context, of cube.ImageID, id cube.BaseID) (*os.File, error) {
	b, err := s.holdBase(id)
	if err == nil {
		defer b.d.Close()
		err = s.checkBase(ctx, b)
		if err == nil {
			return b.pages, nil
		}
		b.pages.Close()
	}
	return nil, inBase(of, id, err)
}

func (s *Store) checkBase(ctx context.Context, b *heldBase) error {
	want, ok := b.m.file(pagesName)
	if !ok {
		return &cube.CorruptError{Image: b.d.id, File: pagesName, Detail: "it was never finished"}
	}
	return s.check(ctx, b.d, b.m, b.pages, want)
}

// verifyBase reads the pages of a base of an image.
func (s *Store) verifyBase(ctx context.Context, of cube.ImageID, id cube.BaseID, again bool) error {
	d, m, err := s.base(id)
	if err == nil {
		defer d.Close()
		want, ok := m.file(pagesName)
		switch {
		case !ok:
			err = &cube.CorruptError{Image: d.id, File: pagesName, Detail: "it was never finished"}
		case again || !s.seenFile(d, m, want):
			err = s.verifyFile(ctx, d, want)
		}
	}
	return inBase(of, id, err)
}

func (s *Store) seenBase(id cube.BaseID) bool {
	d, m, err := s.base(id)
	if err != nil {
		return false
	}
	defer d.Close()
	want, ok := m.file(pagesName)
	return ok && s.seenFile(d, m, want)
}

// inBase is the error of an image with whose base something is wrong.
func inBase(of cube.ImageID, id cube.BaseID, err error) error {
	var c *cube.CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		return &cube.CorruptError{Image: of, File: "base " + string(id), Detail: fmt.Sprintf("its %s: %s", c.File, c.Detail)}
	case errors.Is(err, cube.ErrNotFound):
		return &cube.CorruptError{Image: of, File: "base " + string(id), Detail: "it is missing"}
	}
	return fmt.Errorf("image %s: base %s: %w", of, id, err)
}

// steady does f with an image, and does it again where that has failed and another
// manifest is there by now: what the one before named may be gone.
func (s *Store) steady(id cube.ImageID, f func(d *directory, m manifest) error) error {
	d, err := s.directory(id)
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	for {
		if err != nil {
			return err
		}
		failed := f(d, m)
		if !errors.Is(failed, cube.ErrCorrupt) {
			return failed
		}
		was := m
		if m, err = d.manifest(manifestName); err != nil || m.Image.FilesOnly || slices.Equal(m.names(), was.names()) && slices.Equal(m.Image.Bases, was.Image.Bases) {
			return failed
		}
	}
}

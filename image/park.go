package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

var (
	fpParkRenamed = failpoint.New("image/park/renamed")
	fpFreeUnnamed = failpoint.New("image/free/unnamed")
)

// claim reports whether nothing needs the pages in a directory, and keeps it so until
// release: nobody has them open, and no image has pages in them.
func (s *Store) claim(d *directory, id cube.BaseID) (release func() error, free bool, err error) {
	f, err := d.Open(pagesName)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("image %s: %s: %w", d.id, pagesName, unavailable(err))
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, f.Close()
	}
	if err != nil {
		f.Close()
		return nil, false, fmt.Errorf("image %s: %s: %w", d.id, pagesName, unavailable(err))
	}
	// With the lock: whoever publishes an image has its bases open until then.
	if uses, err := s.uses(); err != nil || len(uses[id]) > 0 {
		return nil, false, f.Close() // what cannot be told may be so
	}
	return f.Close, true, nil
}

// park makes an image that is deleted one of which the pages stay: others need them.
// Its id is free. Where there is no room for that it is hidden, where it is hidden
// already that is ErrNoSpace.
func (s *Store) park(d *directory, m manifest) error {
	to := s.baseDir(m.Image.Base)
	err := os.Rename(d.path, to)
	if full(err) {
		if hidden, herr := d.has(hiddenName); hidden || herr != nil {
			return errors.Join(herr, noSpace(fmt.Errorf("delete image %s: others have memory in it: %w", d.id, err)))
		}
		err = d.hide()
		to = d.path
	}
	if err != nil {
		return fmt.Errorf("delete image %s: %w", d.id, err)
	}
	if to == d.path {
		return nil
	}
	if err := fpParkRenamed.Hit(); err != nil {
		return errors.Join(fmt.Errorf("delete image %s: %w", d.id, err), os.Rename(to, d.path))
	}
	d.path = to
	if err := d.strip(m); err != nil {
		return err
	}
	s.freeBases(m.Image.Bases)
	return nil
}

// strip leaves of a deleted image what others need.
func (d *directory) strip(m manifest) error {
	entries, err := fs.ReadDir(d.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		switch name := e.Name(); {
		case m.stays(name), name == manifestName, name == hiddenName, name == durableName, name == notesName:
		default:
			errs = append(errs, gone(d.Remove(name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image %s, of which the pages stay: %w", d.id, err)
	}
	return nil
}

// gone makes a success of removing what is not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// freeBases frees what of bases nothing needs any more. What cannot be freed now the next
// Collect frees.
func (s *Store) freeBases(ids []cube.BaseID) {
	for _, id := range ids {
		_, _ = s.freeBase(id)
	}
}

// FreeBases frees the pages of deleted images that nobody needs any more: a sandbox that had
// memory in them has ended.
func (s *Store) FreeBases() error {
	ids, err := s.bases()
	s.freeBases(ids)
	return err
}

// freeBase frees the pages of a deleted image, if nothing needs them any more, and
// returns how many bytes they took; 0: they stay.
func (s *Store) freeBase(id cube.BaseID) (bytes int64, err error) {
	err = s.ifUnneeded(id, func(d *directory) error {
		loose, err := d.loose()
		if err != nil {
			return err
		}
		if !loose {
			// Before that nothing may bring back, after a power cut, who needed them.
			if err := errors.Join(syncDir(s.imagesDir()), syncDir(s.stagingDir())); err != nil {
				return err
			}
		}
		bytes = allocated(d.path)
		forget := s.forgetting(d)
		// Without a manifest they are ones that nobody can come to need.
		if err := errors.Join(gone(d.Remove(manifestName)), gone(d.Remove(hiddenName))); err != nil {
			return err
		}
		if err := fpFreeUnnamed.Hit(); err != nil {
			return err
		}
		forget()
		return os.RemoveAll(d.path)
	})
	if err != nil {
		return 0, fmt.Errorf("free base %s: %w", id, err)
	}
	return bytes, nil
}

// ifUnneeded does f with the directory of a deleted image that nothing needs.
func (s *Store) ifUnneeded(id cube.BaseID, f func(d *directory) error) error {
	d, err := s.holdAt(s.baseDir(id), id.Image())
	if errors.Is(err, cube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	release, free, err := s.claim(d, id)
	if err != nil || !free {
		return err
	}
	defer release()
	return f(d)
}

// finish sums the pages of a base that are not, and writes its manifest.
func (s *Store) finish(ctx context.Context, id cube.BaseID) error {
	d, m, err := s.base(id)
	if err != nil {
		return err
	}
	defer d.Close()
	if len(m.Files) > 0 {
		return nil
	}
	held, err := s.holdAt(d.path, d.id)
	if err != nil {
		return err
	}
	defer held.Close()
	if loose, err := held.loose(); err != nil || !loose {
		return err
	}
	f, err := held.open(pagesName)
	if err != nil {
		return err
	}
	defer f.Close()
	sums, err := sum(ctx, f, 0)
	if err != nil {
		return held.unreadable(pagesName, err)
	}
	if sums.Identity, err = identityOf(f); err != nil {
		return unavailable(err)
	}
	sums.Name = pagesName
	bytes, err := onDisk(f)
	if err != nil {
		return unavailable(err)
	}
	m = manifest{Format: format, Boot: s.boot, Files: []fileSum{sums}, Image: cube.Image{
		ID: held.id, Base: id, Kind: cube.KindBase, Created: time.Now().UTC(), PagesBytes: sums.Size, Bytes: min(bytes, sums.Size),
	}}
	return noSpace(held.replace(m))
}

// tidyBases removes what processes that are gone left among the pages of deleted images.
func (s *Store) tidyBases() error {
	ids, err := s.bases()
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, unheld(s.baseDir(id), func() error {
			d, err := s.directoryAt(s.baseDir(id), id.Image())
			if err != nil {
				return err
			}
			defer d.Close()
			if loose, err := d.loose(); err != nil {
				return err
			} else if loose {
				return s.removeLoose(d)
			}
			m, err := d.anyManifest()
			if err != nil {
				return nil // a Verify says what is the matter
			}
			return d.strip(m)
		}))
	}
	return errors.Join(errs...)
}

// removeLoose frees pages that no image can have memory in, if nobody has them open. The
// caller holds the directory.
func (s *Store) removeLoose(d *directory) error {
	release, free, err := s.claim(d, "")
	if err != nil || !free {
		return err
	}
	defer release()
	return os.RemoveAll(d.path)
}

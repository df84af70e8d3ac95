package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	cube "cubesandbox"
)

// trashPrefix begins the names of images that are being removed.
const trashPrefix = "trash-"

// stage makes a directory in staging and locks it: it is swept as soon as the lock is
// gone. A prefix says what it is for.
func (s *Store) stage(prefix string) (dir string, lock *os.File, err error) {
	for {
		if dir, err = os.MkdirTemp(s.stagingDir(), prefix); err != nil {
			return "", nil, err
		}
		lock, err = os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a sweep came before the lock
		}
		if err != nil {
			return "", nil, errors.Join(err, os.Remove(dir))
		}
		if err := flock(lock, syscall.LOCK_EX); err != nil {
			return "", nil, errors.Join(err, lock.Close(), os.Remove(dir))
		}
		there, err := samePlace(lock, dir)
		if err != nil {
			return "", nil, errors.Join(err, lock.Close(), os.Remove(dir))
		}
		if there {
			return dir, lock, nil
		}
		lock.Close()
	}
}

// sweep removes what processes that are gone left in staging and beside the files of
// images, and images that they were removing in place.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.stagingDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.stagingDir(), e.Name())
		if err := unheld(path, func() error { return os.RemoveAll(path) }); err != nil {
			return err
		}
	}
	ids, err := s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := s.drop(id, (*directory).removed, false); err != nil {
			return err
		}
		if err := s.tidy(id); err != nil {
			return err
		}
	}
	return s.tidyBases()
}

// drop removes an image that is no more than what a condition says, and returns how
// many bytes it had; with dry it only says. 0: the condition does not hold.
func (s *Store) drop(id cube.ImageID, is func(*directory) (bool, error), dry bool) (bytes int64, err error) {
	d, err := s.directory(id)
	if errors.Is(err, cube.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if ok, err := is(d); err != nil || !ok {
		return 0, err
	}
	bytes = allocated(d.path)
	if !dry {
		err = s.remove(id, is)
	}
	if errors.Is(err, cube.ErrNotFound) || errors.Is(err, cube.ErrConflict) {
		err = nil // somebody else was faster
	}
	return bytes, err
}

// unheld does f with the lock of path, and nothing where somebody has it or path is
// not there.
func unheld(path string, f func() error) error {
	lock, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	err = flock(lock, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	there, err := samePlace(lock, path)
	if err != nil || !there {
		return err // or it was published, or removed, meanwhile
	}
	return f()
}

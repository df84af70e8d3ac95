package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	cube "cubesandbox"
)

// Store is a directory of images. Several processes may use one.
type Store struct {
	dir string
	// verified holds identities of files that were read and found right although
	// they are not those that were written: after a copy of the store, say.
	verified sync.Map
}

// Open makes the directory if need be and sweeps what was left in staging by
// processes that are gone.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{dir, s.imagesDir(), s.stagingDir(), s.rootfsDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("image store: %w", err)
		}
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("image store: sweep: %w", err)
	}
	return s, nil
}

func (s *Store) imagesDir() string  { return filepath.Join(s.dir, "images") }
func (s *Store) stagingDir() string { return filepath.Join(s.dir, "staging") }
func (s *Store) rootfsDir() string  { return filepath.Join(s.dir, "rootfs") }

// Dir is where the image is, published or not.
func (s *Store) Dir(id cube.ImageID) string { return filepath.Join(s.imagesDir(), string(id)) }

// sweep removes staging directories that no process has locked.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.stagingDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.stagingDir(), e.Name())
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			err = os.RemoveAll(path)
		} else if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Image returns the description of a published image.
func (s *Store) Image(id cube.ImageID) (cube.Image, error) {
	m, err := s.manifest(id)
	return m.Image, err
}

func (s *Store) manifest(id cube.ImageID) (manifest, error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return manifest{}, err
	}
	b, err := os.ReadFile(filepath.Join(s.Dir(id), manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return manifest{}, fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
	}
	if err != nil {
		return manifest{}, fmt.Errorf("image %s: %w", id, err)
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return manifest{}, &cube.CorruptError{Image: id, File: manifestName, Detail: err.Error()}
	}
	if m.Format != format {
		return manifest{}, fmt.Errorf("image %s has format %d, this version reads %d: %w", id, m.Format, format, cube.ErrIncompatible)
	}
	return m, nil
}

// Images returns all published images, ordered by id. One that cannot be read is
// left out, with its error joined to the others'.
func (s *Store) Images() ([]cube.Image, error) {
	entries, err := os.ReadDir(s.imagesDir())
	if err != nil {
		return nil, err
	}
	var out []cube.Image
	var errs []error
	for _, e := range entries {
		im, err := s.Image(cube.ImageID(e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, im)
	}
	slices.SortFunc(out, func(a, b cube.Image) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out, errors.Join(errs...)
}

// Delete removes an image. It is gone for everybody at once; sandboxes that were
// made from it are not touched.
func (s *Store) Delete(id cube.ImageID) error {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return err
	}
	trash, err := os.MkdirTemp(s.stagingDir(), "trash-")
	if err != nil {
		return noSpace(err)
	}
	if err := os.Rename(s.Dir(id), filepath.Join(trash, string(id))); err != nil {
		os.Remove(trash)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
		}
		return err
	}
	return os.RemoveAll(trash)
}

// Files are the opened files of an image, in the engine's order: kernel,
// pages-meta, pages.
type Files struct {
	Image cube.Image
	Files []*os.File
}

// Close closes them.
func (f *Files) Close() {
	for _, x := range f.Files {
		x.Close()
	}
}

// OpenImage opens an image for a restore. Its files are those that were verified
// when it was written, or they are verified now.
func (s *Store) OpenImage(id cube.ImageID) (_ *Files, err error) {
	m, err := s.manifest(id)
	if err != nil {
		return nil, err
	}
	out := &Files{Image: m.Image}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, want := range m.Files {
		f, err := os.Open(filepath.Join(s.Dir(id), want.Name))
		if err != nil {
			return nil, &cube.CorruptError{Image: id, File: want.Name, Detail: err.Error()}
		}
		out.Files = append(out.Files, f)
		if err := s.check(id, f, want); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// noSpace gives a full disk its name.
func noSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", cube.ErrNoSpace, err)
	}
	return err
}

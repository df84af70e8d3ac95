package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

var (
	fpHideHidden    = failpoint.New("image/hide/hidden")
	fpDeleteRenamed = failpoint.New("image/delete/renamed")
)

// Hide makes an image one that nobody finds, which a power cut does not undo. Its
// files stay until Delete. It needs no room on disk. What is hidden is hidden again
// with success.
func (s *Store) Hide(id cube.ImageID) error {
	d, err := s.hold(id)
	if err != nil {
		return err
	}
	defer d.Close()
	hidden, err := d.has(hiddenName)
	if err != nil {
		return err
	}
	if err := d.hide(); err != nil {
		return fmt.Errorf("hide image %s: %w", id, noSpace(err))
	}
	err = d.self.Sync()
	if err == nil {
		err = fpHideHidden.Hit()
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("hide image %s: %w", id, err)
	if !hidden {
		err = errors.Join(err, d.Rename(hiddenName, manifestName), d.self.Sync())
	}
	return err
}

func (d *directory) hide() error {
	err := d.Rename(manifestName, hiddenName)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if hidden, err := d.has(hiddenName); hidden || err != nil {
		return err
	}
	removed, err := d.removed()
	if err != nil {
		return err
	}
	if removed {
		return cube.ErrNotFound
	}
	// It has lost its manifest. Nobody can use it, but it can be deleted as any other.
	return d.WriteFile(hiddenName, nil, 0o400)
}

// Delete removes an image, hidden or not, and gives back its room. It is gone for
// everybody at once; who has its files open keeps them. Where other images have memory in
// its pages, or a sandbox has them open, these stay until the last of them has gone: its
// id can be given again. A power cut may bring it back, whole; hidden images come back
// hidden.
func (s *Store) Delete(id cube.ImageID) error {
	return s.remove(id, func(*directory) (bool, error) { return true, nil })
}

// DeleteHidden is Delete for an image that is hidden, else ErrConflict: since it was
// hidden, its id may have been given again.
func (s *Store) DeleteHidden(id cube.ImageID) error {
	return s.remove(id, (*directory).vacant)
}

// remove deletes what may be deleted, else ErrConflict.
func (s *Store) remove(id cube.ImageID, may func(*directory) (bool, error)) error {
	d, err := s.hold(id)
	if err != nil {
		return err
	}
	defer d.Close()
	ok, err := may(d)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("delete image %s: it is not hidden: %w", id, cube.ErrConflict)
	}
	removed, err := d.removed()
	if err != nil {
		return err
	}
	forget := s.forgetting(d)
	if removed {
		if err := d.removeInPlace(); err != nil {
			return err
		}
		forget()
		return notFound(id)
	}
	m, err := d.anyManifest()
	if errors.Is(err, cube.ErrUnavailable) {
		return fmt.Errorf("delete image %s: what it is cannot be read: %w", id, err)
	}
	if err == nil { // else nobody can make anything of its pages
		release, free, err := s.claim(d, m.Image.Base)
		if err != nil {
			return fmt.Errorf("delete image %s: %w", id, err)
		}
		if !free {
			return s.park(d, m)
		}
		defer release()
		defer s.freeBases(m.Image.Bases)
	}
	// The lock goes with it: no sweep comes between.
	trash := filepath.Join(s.stagingDir(), trashPrefix+string(id)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	err = os.Rename(d.path, trash)
	if full(err) {
		err := d.removeInPlace()
		if err == nil {
			forget()
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("delete image %s: %w", id, err)
	}
	if err := fpDeleteRenamed.Hit(); err != nil {
		return errors.Join(fmt.Errorf("delete image %s: %w", id, err), os.Rename(trash, d.path))
	}
	forget()
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("delete image %s: %w", id, err)
	}
	return nil
}

// forgetting prepares to drop what this process knows of an image.
func (s *Store) forgetting(d *directory) (forget func()) {
	var files []inode
	entries, _ := fs.ReadDir(d.FS(), ".")
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			files = append(files, inodeOf(fi))
		}
	}
	return func() {
		for _, f := range files {
			s.files.forget(f)
		}
		s.outlines.Delete(d.path)
		s.manifests.Delete(d.inode)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.lost, d.place())
	}
}

// removeInPlace is for a disk so full that a directory cannot take another name. One
// that is ended on the way is swept at the next Open.
func (d *directory) removeInPlace() error {
	for _, name := range []string{manifestName, hiddenName} {
		if err := d.Rename(name, deletedName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete image %s: %w", d.id, err)
		}
	}
	entries, err := fs.ReadDir(d.FS(), ".")
	if err != nil {
		return fmt.Errorf("delete image %s: %w", d.id, err)
	}
	for _, e := range entries {
		if e.Name() != deletedName {
			err = errors.Join(err, d.Remove(e.Name()))
		}
	}
	if err == nil {
		err = d.Remove(deletedName) // last: until then it says what this is
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(d.path)
	}
	if err != nil {
		return fmt.Errorf("delete image %s: %w", d.id, err)
	}
	return nil
}

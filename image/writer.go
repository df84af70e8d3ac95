package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// Writer is an image that is being written. It ends with Publish, Keep or Abort.
type Writer struct {
	s    *Store
	id   cube.ImageID
	dir  string
	lock *os.File
	base cube.BaseID
	held map[cube.BaseID]*heldBase // those that pages may lie in
	// Files are to be written by the engine: kernel, pages-meta, pages.
	Files []*os.File
	// Sources is for the table (package pagetable) of an engine that leaves pages where
	// they are, in those of bases, which it names by their cube.BaseID. It may stay empty.
	Sources *os.File
	// Disk is for what the sandbox has written to disk, as a tar. It may stay empty.
	Disk *os.File
}

// Begin starts an image with the given id, or returns ErrExists. pages is an upper
// bound of the memory that will be saved, in bytes: the room is set aside before
// anything stops, so a full disk is found here and not in the middle. bases are those in
// which the sandbox may have pages: they stay until the Writer has ended, whatever
// becomes of the sandbox. The id of a hidden image can be given again.
func (s *Store) Begin(id cube.ImageID, pages int64, bases ...cube.BaseID) (_ *Writer, err error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return nil, err
	}
	if err := s.vacant(id); err != nil {
		return nil, err
	}
	w := &Writer{s: s, id: id, base: cube.NewBaseID(id), held: map[cube.BaseID]*heldBase{}}
	if w.dir, w.lock, err = s.stage("image-"); err != nil {
		return nil, noSpace(fmt.Errorf("image %s: %w", id, err))
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	for _, base := range bases {
		if err := w.hold(base); err != nil {
			return nil, err
		}
	}
	for _, name := range memoryNames {
		f, err := w.create(name)
		if err != nil {
			return nil, err
		}
		w.Files = append(w.Files, f)
	}
	if w.Sources, err = w.create(sourcesName); err != nil {
		return nil, err
	}
	if w.Disk, err = w.create(diskName); err != nil {
		return nil, err
	}
	if err := reserve(w.Files[pagesIndex], pages); err != nil {
		return nil, noSpace(fmt.Errorf("image %s: %d MiB on disk: %w", id, pages>>20, err))
	}
	return w, nil
}

// vacant is ErrExists where there is an image of this id that is not hidden.
func (s *Store) vacant(id cube.ImageID) error {
	d, err := s.directory(id)
	if errors.Is(err, cube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	vacant, err := d.vacant()
	if err == nil && !vacant {
		err = fmt.Errorf("image %s: %w", id, cube.ErrExists)
	}
	return err
}

func (w *Writer) create(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, noSpace(fmt.Errorf("image %s: %w", w.id, err))
	}
	return f, nil
}

// reserve sets space aside without changing the length.
func reserve(f *os.File, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // this file system cannot; the lengths tell afterwards
	}
	return err
}

// Base names the pages of the image for others, once it is published or kept.
func (w *Writer) Base() cube.BaseID { return w.base }

// DropMemory makes it an image of files only: what is in Files is given back.
func (w *Writer) DropMemory() error {
	errs := []error{w.Sources.Truncate(0)}
	for i, f := range w.Files {
		errs = append(errs, f.Close(), os.Remove(filepath.Join(w.dir, memoryNames[i])))
	}
	w.Files = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image %s: drop memory: %w", w.id, err)
	}
	return nil
}

// whole finds a file that a full disk has cut short: the engine may report
// success all the same. All are written from the first byte to the last, so a hole is a
// write that is missing. A kernel and a pages-meta that end too early cannot be told.
// A tar has holes of its own; who wrote it knows its end. So does a table.
func whole(name string, f *os.File, size int64) error {
	pages := name == memoryNames[pagesIndex]
	if size == 0 && !pages {
		return fmt.Errorf("%w: nothing was written", cube.ErrNoSpace)
	}
	if name == diskName || name == sourcesName {
		return nil
	}
	if pages && size%4096 != 0 {
		return fmt.Errorf("%w: cut short at byte %d", cube.ErrNoSpace, size)
	}
	hole, err := f.Seek(0, unix.SEEK_HOLE)
	if size > 0 && err == nil && hole < size {
		return fmt.Errorf("%w: nothing was written at byte %d", cube.ErrNoSpace, hole)
	}
	if !pages {
		return nil
	}
	// Gives back what was set aside and not needed.
	return f.Truncate(size)
}

// Abort drops what was written.
func (w *Writer) Abort() {
	os.RemoveAll(w.dir)
	w.close()
}

func (w *Writer) close() {
	for _, f := range append(w.Files, w.Sources, w.Disk, w.lock) {
		if f != nil {
			f.Close()
		}
	}
	for _, b := range w.held {
		b.close()
	}
	w.Files, w.Sources, w.Disk, w.lock, w.held = nil, nil, nil, nil, nil
}

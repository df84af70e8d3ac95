package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

const (
	manifestName = "manifest.json"
	format       = 1
)

// fileNames in the engine's order.
var fileNames = []string{"kernel", "pages-meta", "pages"}

const pagesIndex = 2

// manifest is what is written beside the files.
type manifest struct {
	Format int        `json:"format"`
	Image  cube.Image `json:"image"`
	Files  []fileSum  `json:"files"`
}

// Writer is an image that is being written. It ends with Publish or Abort.
type Writer struct {
	s    *Store
	id   cube.ImageID
	dir  string
	lock *os.File
	// Files are to be written by the engine: kernel, pages-meta, pages.
	Files []*os.File
}

// Begin starts an image with the given id, or returns ErrExists. pages is an upper
// bound of the memory that will be saved, in bytes: the room is set aside before
// anything stops, so a full disk is found here and not in the middle.
func (s *Store) Begin(id cube.ImageID, pages int64) (_ *Writer, err error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.Dir(id)); err == nil {
		return nil, fmt.Errorf("image %s: %w", id, cube.ErrExists)
	}
	w := &Writer{s: s, id: id}
	if w.dir, err = os.MkdirTemp(s.stagingDir(), "image-"); err != nil {
		return nil, noSpace(err)
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	if w.lock, err = os.Open(w.dir); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(w.lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	for _, name := range fileNames {
		f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, noSpace(err)
		}
		w.Files = append(w.Files, f)
	}
	if err := reserve(w.Files[pagesIndex], pages); err != nil {
		return nil, noSpace(fmt.Errorf("image %s: %d MiB on disk: %w", id, pages>>20, err))
	}
	return w, nil
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

// Publish verifies what was written and makes it visible. After a failure the
// image does not exist.
func (w *Writer) Publish(im cube.Image) (_ cube.Image, err error) {
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	im.ID = w.id
	m := manifest{Format: format, Image: im}
	if m.Files, err = w.verify(); err != nil {
		return cube.Image{}, err
	}
	for _, f := range m.Files {
		m.Image.Bytes += f.Size
	}
	m.Image.PagesBytes = m.Files[pagesIndex].Size
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return cube.Image{}, err
	}
	if err := os.WriteFile(filepath.Join(w.dir, manifestName), b, 0o400); err != nil {
		return cube.Image{}, noSpace(err)
	}
	// Publication: from here on it exists. Rename would silently replace an empty
	// directory only, which no image is.
	if err := os.Rename(w.dir, w.s.Dir(w.id)); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
			err = fmt.Errorf("image %s: %w", w.id, cube.ErrExists)
		}
		return cube.Image{}, err
	}
	w.close()
	return m.Image, nil
}

// verify checks and sums the files.
func (w *Writer) verify() ([]fileSum, error) {
	var sums []fileSum
	for i, f := range w.Files {
		s, err := sum(f)
		if err != nil {
			return nil, noSpace(fmt.Errorf("image %s: verify %s: %w", w.id, fileNames[i], err))
		}
		s.Name = fileNames[i]
		if err := whole(f, s.Size, i == pagesIndex); err != nil {
			return nil, fmt.Errorf("image %s: %s: %w", w.id, fileNames[i], err)
		}
		if err := f.Chmod(0o400); err != nil {
			return nil, err
		}
		if s.Identity, err = identityOf(f); err != nil {
			return nil, err
		}
		sums = append(sums, s)
	}
	return sums, nil
}

// Keep hands out the verified files of an image that will never be published: for
// clones, which need it for the time of a restore. The image has no name on disk
// afterwards. The caller closes the files.
func (w *Writer) Keep() (_ []*os.File, pages int64, err error) {
	defer w.Abort()
	for i, f := range w.Files {
		fi, err := f.Stat()
		if err != nil {
			return nil, 0, err
		}
		if err := whole(f, fi.Size(), i == pagesIndex); err != nil {
			return nil, 0, fmt.Errorf("saved state: %s: %w", fileNames[i], err)
		}
		pages = fi.Size()
	}
	files := w.Files
	w.Files = nil
	return files, pages, nil
}

// whole finds a file that a full disk has cut short: the engine may report
// success all the same. Its pages are written one after the other, so a hole is a
// write that is missing.
func whole(f *os.File, size int64, pages bool) error {
	if size == 0 && !pages {
		return fmt.Errorf("%w: nothing was written", cube.ErrNoSpace)
	}
	if !pages {
		return nil
	}
	if size%4096 != 0 {
		return fmt.Errorf("%w: cut short at byte %d", cube.ErrNoSpace, size)
	}
	hole, err := f.Seek(0, unix.SEEK_HOLE)
	if size > 0 && err == nil && hole < size {
		return fmt.Errorf("%w: nothing was written at byte %d", cube.ErrNoSpace, hole)
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
	for _, f := range w.Files {
		f.Close()
	}
	w.Files = nil
	if w.lock != nil {
		w.lock.Close()
		w.lock = nil
	}
}

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	cube "cubesandbox"
)

// directory is the opened directory of an image: whatever becomes of its name, the
// files in it are those of one image.
type directory struct {
	*os.Root
	id   cube.ImageID
	path string
	self *os.File
	// opened is when the store was.
	opened time.Time
	inode  inode
	// known are the manifests that this process has read: see remembered.
	known *sync.Map
}

func (d *directory) place() place { return place{d.id, d.inode} }

// directory opens that of an image, published, hidden or half deleted.
func (s *Store) directory(id cube.ImageID) (*directory, error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return nil, err
	}
	return s.directoryAt(s.Dir(id), id)
}

// directoryAt is directory for one that is elsewhere.
func (s *Store) directoryAt(path string, id cube.ImageID) (*directory, error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", id, unavailable(err))
	}
	self, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("image %s: %w", id, unavailable(err))
	}
	d := &directory{Root: root, id: id, path: path, self: self, opened: s.opened, known: &s.manifests}
	fi, err := self.Stat()
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("image %s: %w", id, unavailable(err))
	}
	d.inode = inodeOf(fi)
	return d, nil
}

// hold opens the directory of an image and locks it: nobody else moves it, or makes
// it another thing, until it is closed. It waits for who does.
func (s *Store) hold(id cube.ImageID) (*directory, error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return nil, err
	}
	return s.holdAt(s.Dir(id), id)
}

// holdAt is hold for one that is elsewhere.
func (s *Store) holdAt(path string, id cube.ImageID) (*directory, error) {
	for {
		d, err := s.directoryAt(path, id)
		if err != nil {
			return nil, err
		}
		if err := flock(d.self, syscall.LOCK_EX); err != nil {
			d.Close()
			return nil, fmt.Errorf("image %s: %w", id, unavailable(err))
		}
		there, err := d.inPlace()
		if err != nil {
			d.Close()
			return nil, err
		}
		if there {
			return d, nil
		}
		d.Close() // it was deleted while we waited; another may be there now
	}
}

// Close also unlocks it.
func (d *directory) Close() error {
	return errors.Join(d.self.Close(), d.Root.Close())
}

// inPlace reports whether this is still the directory under its name.
func (d *directory) inPlace() (bool, error) {
	there, err := samePlace(d.self, d.path)
	if err != nil {
		return false, fmt.Errorf("image %s: %w", d.id, unavailable(err))
	}
	return there, nil
}

// has reports whether there is a name in it.
func (d *directory) has(name string) (bool, error) {
	_, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("image %s: %s: %w", d.id, name, unavailable(err))
	}
	return true, nil
}

// vacant reports whether its id can be given again.
func (d *directory) vacant() (bool, error) {
	hidden, err := d.has(hiddenName)
	if hidden || err != nil {
		return hidden, err
	}
	return d.removed()
}

// removed reports whether it is one that was being removed in place: what is left
// says so, or nothing is left.
func (d *directory) removed() (bool, error) {
	deleted, err := d.has(deletedName)
	if deleted || err != nil {
		return deleted, err
	}
	entries, err := fs.ReadDir(d.FS(), ".")
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // itself is gone
	}
	if err != nil {
		return false, fmt.Errorf("image %s: %w", d.id, unavailable(err))
	}
	return len(entries) == 0, nil
}

// torn reports whether it is what a power cut leaves of an image that was not durable
// yet: nobody can tell what it was. One that is young may be under repair, unless it is
// older than this process.
func (d *directory) torn() (bool, error) {
	_, err := d.manifest(manifestName)
	if !errors.Is(err, cube.ErrCorrupt) {
		return false, nil
	}
	durable, err := d.has(durableName)
	return err == nil && !durable && (!young(d.path) || d.before(d.opened)), err
}

// before reports whether the directory was last changed before a moment.
func (d *directory) before(t time.Time) bool {
	fi, err := d.self.Stat()
	return err == nil && fi.ModTime().Before(t)
}

// missing is the error for a file that is not there: the image was deleted or lost its
// memory while we looked, or it is damaged.
func (d *directory) missing(name string) error {
	there, err := d.inPlace()
	if err != nil {
		return err
	}
	vacant, err := d.vacant()
	if err != nil {
		return err
	}
	if !there || vacant {
		return notFound(d.id)
	}
	if d.dropped(name) {
		return fmt.Errorf("image %s: its memory has just been dropped: %w", d.id, cube.ErrIncompatible)
	}
	return &cube.CorruptError{Image: d.id, File: name, Detail: "it is missing"}
}

// samePlace reports whether path names the opened file.
func samePlace(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// flock locks an open file. A signal does not end the wait.
func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

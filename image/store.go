package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	cube "cubesandbox"
)

// Store is a directory of images. Several processes may use one.
type Store struct {
	dir string
	// boot names the life of the machine: the same until it is started again.
	boot string
	// opened is a moment before this process has made anything here, as file systems
	// count: their clock is behind by some milliseconds.
	opened time.Time
	// files are verdicts on those of images, rootfs on file systems by their digest.
	files  verdicts[inode]
	rootfs verdicts[string]
	// manifests are remembered, by the directories that they are in; outlines are those of manifests, by their paths: see outline.
	manifests sync.Map
	outlines  sync.Map

	mu    sync.Mutex                     // guards the following
	turns map[cube.ImageID]chan struct{} // images that are being synced; closed at the end
	lost  map[place]error                // images whose sync has failed: see Sync
}

// Open makes the directory if need be and sweeps what was left by processes that are
// gone.
func Open(dir string) (*Store, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s := &Store{dir: dir, boot: strings.TrimSpace(string(boot)), opened: time.Now().Add(-100 * time.Millisecond),
		turns: map[cube.ImageID]chan struct{}{}, lost: map[place]error{}}
	for _, d := range []string{dir, s.imagesDir(), s.basesDir(), s.stagingDir(), s.rootfsDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("image store: %w", noSpace(err))
		}
	}
	// What will be durable in them must be found after a power cut.
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := syncDir(d); err != nil {
			return nil, fmt.Errorf("image store: %w", noSpace(err))
		}
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("image store: sweep: %w", err)
	}
	return s, nil
}

func (s *Store) imagesDir() string  { return filepath.Join(s.dir, "images") }
func (s *Store) basesDir() string   { return filepath.Join(s.dir, "bases") }
func (s *Store) stagingDir() string { return filepath.Join(s.dir, "staging") }
func (s *Store) rootfsDir() string  { return filepath.Join(s.dir, "rootfs") }

// Dir is where the image is, published or not.
func (s *Store) Dir(id cube.ImageID) string { return filepath.Join(s.imagesDir(), string(id)) }

// Image returns the description of a published image. Of one whose manifest is corrupt
// it says, beside the error, whether it was durable.
func (s *Store) Image(id cube.ImageID) (cube.Image, error) {
	d, err := s.directory(id)
	if err != nil {
		return cube.Image{}, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if errors.Is(err, cube.ErrCorrupt) {
		durable, derr := d.has(durableName)
		if derr != nil {
			return cube.Image{}, derr
		}
		return cube.Image{ID: id, Durable: durable}, err
	}
	return m.Image, err
}

// Images returns all published images, ordered by id. One that cannot be read is
// left out, with its error joined to the others'.
func (s *Store) Images() ([]cube.Image, error) {
	ids, err := s.ids()
	errs := []error{err}
	var out []cube.Image
	for _, id := range ids {
		im, err := s.Image(id)
		if errors.Is(err, cube.ErrNotFound) {
			continue // hidden, or deleted meanwhile
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, im)
	}
	return out, errors.Join(errs...)
}

// Hidden returns the images that are hidden and not deleted, ordered by id.
func (s *Store) Hidden() ([]cube.ImageID, error) {
	ids, err := s.ids()
	hidden := func(id cube.ImageID) bool { return exists(filepath.Join(s.Dir(id), hiddenName)) }
	return slices.DeleteFunc(ids, func(id cube.ImageID) bool { return !hidden(id) }), err
}

// ids are the images that there are in any state, ordered. Names that are no ids are
// not ours: lost+found, or a copy that somebody made.
func (s *Store) ids() ([]cube.ImageID, error) {
	entries, err := os.ReadDir(s.imagesDir()) // sorted
	if err != nil {
		return nil, unavailable(err)
	}
	var ids []cube.ImageID
	for _, e := range entries {
		if id, err := cube.ParseImageID(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Unverified returns the images, ordered by id, of which a file was neither written
// nor read since the machine started, or has been touched since: what is worth a
// Verify after a start.
func (s *Store) Unverified() ([]cube.ImageID, error) {
	ids, err := s.ids()
	errs := []error{err}
	var out []cube.ImageID
	for _, id := range ids {
		seen, err := s.seen(id)
		if err != nil && !errors.Is(err, cube.ErrNotFound) {
			errs = append(errs, err)
		}
		if err == nil && !seen {
			out = append(out, id)
		}
	}
	return out, errors.Join(errs...)
}

// notFound is the error for an image that is not there, or not for anybody any more.
func notFound(id cube.ImageID) error {
	return fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// noSpace gives a full disk its name.
func noSpace(err error) error {
	if full(err) {
		return fmt.Errorf("%w: %w", cube.ErrNoSpace, err)
	}
	return err
}

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

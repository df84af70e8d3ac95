package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

var fpSyncSynced = failpoint.New("image/sync/synced")

// Sync makes a published image durable: from its return on it survives a power cut.
// Calls at the same time share the work. What was written in an earlier life of the
// machine is read first: a torn image becomes a *cube.CorruptError, not durable. A disk
// that has once failed to write an image stays an error, for it may then report
// success for what it has dropped. An image that is deleted meanwhile is ErrNotFound.
func (s *Store) Sync(ctx context.Context, id cube.ImageID) error {
	done, err := s.turn(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return s.steady(id, func(d *directory, m manifest) error {
		if m.Image.Durable {
			return nil
		}
		if err := s.settle(ctx, d, m); err != nil {
			return err
		}
		if err := fpSyncSynced.Hit(); err != nil {
			return fmt.Errorf("sync image %s: %w", id, err)
		}
		return s.markDurable(d, manifestName)
	})
}

// syncBase makes a base durable, whatever its image is by now.
func (s *Store) syncBase(ctx context.Context, id cube.BaseID) error {
	done, err := s.turn(ctx, id.Image())
	if err != nil {
		return err
	}
	defer done()
	for {
		d, m, err := s.base(id)
		if err != nil {
			return err
		}
		if !m.Image.Durable {
			err = s.settle(ctx, d, m)
		}
		if err == nil && !m.Image.Durable {
			err = s.markDurable(d, manifestName, hiddenName)
		}
		d.Close()
		if !errors.Is(err, cube.ErrNotFound) {
			return err
		}
		// It was deleted meanwhile, and its pages are elsewhere.
	}
}

// turn waits until nobody else in this process syncs the image.
func (s *Store) turn(ctx context.Context, id cube.ImageID) (done func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		other, busy := s.turns[id]
		if !busy {
			mine := make(chan struct{})
			s.turns[id] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.turns, id)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
		}
	}
}

// settle syncs the bases, the files, their directory, and the directory that names it.
func (s *Store) settle(ctx context.Context, d *directory, m manifest) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err := s.syncFailed(d); err != nil {
		return err
	}
	for _, id := range m.Image.Bases {
		if err := s.syncBase(ctx, id); err != nil {
			return inBase(d.id, id, err)
		}
	}
	for _, want := range m.Files {
		f, err := s.openFile(ctx, d, m, want)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	f, err := d.Open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = d.open(hiddenName)
	}
	if err != nil {
		return err
	}
	files = append(files, f)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := syncAll(append(files, d.self)); err != nil {
		return s.failSync(d, err)
	}
	if err := syncDir(filepath.Dir(d.path)); err != nil {
		return s.failSync(d, err)
	}
	return nil
}

// syncFailed returns the error of a sync that has failed in this life of the machine.
// What the disk has dropped then, the page cache calls written.
func (s *Store) syncFailed(d *directory) error {
	s.mu.Lock()
	err := s.lost[d.place()]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if n, err := s.notes(d); err == nil && n.SyncFailed == s.boot {
		return fmt.Errorf("sync image %s: it has failed before: %w", d.id, syscall.EIO)
	}
	return nil
}

// failSync remembers it, as far as that disk allows also for later processes.
func (s *Store) failSync(d *directory, err error) error {
	err = noSpace(fmt.Errorf("sync image %s: %w", d.id, err))
	s.mu.Lock()
	s.lost[d.place()] = err
	s.mu.Unlock()
	_ = s.amend(d, func(n *notes) { n.SyncFailed = s.boot })
	return err
}

// markDurable puts the marker into a directory that is synced, if it is still there, and
// its manifest has one of the names.
func (s *Store) markDurable(d *directory, names ...string) error {
	held, err := s.holdAt(d.path, d.id)
	if err != nil {
		return err
	}
	defer held.Close()
	there, err := samePlace(d.self, held.path)
	if err == nil && there {
		there = false
		for _, name := range names {
			has, herr := held.has(name)
			there, err = there || has, errors.Join(err, herr)
		}
	}
	if err != nil {
		return fmt.Errorf("sync image %s: %w", d.id, unavailable(err))
	}
	if !there {
		return notFound(d.id) // deleted, or hidden, and perhaps another under the same id
	}
	if err := mark(held.path); err != nil {
		return noSpace(fmt.Errorf("sync image %s: %w", d.id, err))
	}
	if err := held.self.Sync(); err != nil {
		err = errors.Join(err, held.Remove(durableName), flock(held.self, syscall.LOCK_UN))
		return s.failSync(d, err)
	}
	return nil
}

// mark makes the marker, which has no content.
func mark(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, durableName), os.O_CREATE|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	return f.Close()
}

// syncAll syncs files at the same time: their file system commits them together.
func syncAll(files []*os.File) error {
	errs := make([]error, len(files))
	var wg sync.WaitGroup
	for i, f := range files {
		wg.Go(func() { errs[i] = f.Sync() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// dropCache makes the next reading of a file one from the disk. What waits to be written
// is written first, or dropped: the error has been told.
func dropCache(f *os.File) {
	_ = f.Sync()
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// beginWriteback asks for what was written to go to disk, without waiting.
func beginWriteback(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// errClosed is what Sync returns after Close.
var errClosed = errors.New("the records are closed")

// wal makes the log durable. It has a descriptor of its own for it, which takes no
// lock of SQLite's and is told of each error of the disk since it was opened, also
// where SQLite has met it and gone on.
type wal struct {
	file  *os.File
	fsync func(*os.File) error

	// turn is held by who syncs, or closes.
	turn chan struct{}
	err  error // guarded by turn: what ended it, for good

	mu   sync.Mutex // guards the following
	next *flight    // of those that wait; nil while nobody does
}

// flight is one sync, for all who came before it began.
type flight struct {
	done chan struct{} // closed at its end; err is valid then
	err  error
}

func openWAL(path string) (*wal, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the log of the records: %w", err)
	}
	return &wal{file: f, fsync: fdatasync, turn: make(chan struct{}, 1)}, nil
}

// sync returns when what was in the log before it was called is durable.
func (w *wal) sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := w.join()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	}
	w.fly(f)
	return f.err
}

// join returns the sync that has not begun yet. One that has may have missed what the
// caller wrote.
func (w *wal) join() *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil {
		w.next = &flight{done: make(chan struct{})}
	}
	return w.next
}

// fly does it, for whose turn it is. A flight that is not done is the next one then.
func (w *wal) fly(f *flight) {
	select {
	case <-f.done:
		return
	default:
	}
	w.mu.Lock()
	w.next = nil
	w.mu.Unlock()
	// The kernel tells of what it could not write once, and then takes it for written.
	if w.err == nil {
		w.err = w.fsync(w.file)
	}
	f.err = w.err
	close(f.done)
}

// close waits for the sync under way.
func (w *wal) close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	w.err = errors.Join(w.err, errClosed)
	return w.file.Close()
}

func fdatasync(f *os.File) error {
	for {
		switch err := unix.Fdatasync(int(f.Fd())); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("sync %s: %w; what was written last is not known to be on disk, until the server is started again", f.Name(), err)
		}
	}
}

// syncDir makes the names of the files in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Sync implements cube.Store.
func (s *Store) Sync(ctx context.Context) error {
	if err := s.wal.sync(ctx); err != nil {
		return fmt.Errorf("make the records durable: %w", err)
	}
	return nil
}

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// errClosed is what Sync returns after Close.
var errClosed = errors.New("the records are closed")

// wal makes the log durable. It has a descriptor of its own for it, which takes no
// lock of SQLite's and is told of each error of the disk since it was opened, also
// where SQLite has met it and gone on.
type wal struct {
	file  *os.File
	flush func(*os.File) error

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
	return &wal{file: f, flush: flush, turn: make(chan struct{}, 1)}, nil
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
	// The kernel tells of what it could not write once, and then takes it for written:
	// after an error no later success means anything.
	if w.err == nil {
		w.err = w.flush(w.file)
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

// flush writes a file to its disk. It reports one that is no more where SQLite looks
// for it too: what somebody has removed is lost at a power cut, however durable it is.
func flush(f *os.File) error {
	var st unix.Stat_t
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; until the server is started again, nothing is known to be on disk", f.Name(), err)
	case st.Nlink == 0:
		return fmt.Errorf("%s was removed while the server had it open; stop the server, which has all records yet and writes them to the database: %w", f.Name(), cube.ErrCorrupt)
	}
	return nil
}

// Sync implements cube.Store.
func (s *Store) Sync(ctx context.Context) error {
	if err := s.wal.sync(ctx); err != nil {
		return fmt.Errorf("make the records durable: %w", err)
	}
	return nil
}

// Package watch reports what changes in directories, with inotify(7).
//
// A Watcher has an inotify descriptor of its own, so the kernel of the sandbox
// remembers its watches and what happened meanwhile: they are in every image,
// and go on in every life. Directories are opened, and entries described, with
// the rights of the watcher's user in the users' mount namespace; gVisor itself
// asks for no right to watch what one can name.
//
// Events are read as they come and kept for the client within bounds: gVisor's
// own queue has none. A watcher that has lost something says so and is over. One
// of which nothing changes costs no wake-up.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// Errors of Open, and of a watcher that is over.
var (
	// ErrNotDirectory means that the path names something else.
	ErrNotDirectory = errors.New("not a directory")
	// ErrNetwork means that the path is on a network file system, whose changes by
	// others inotify does not see.
	ErrNetwork = errors.New("cannot watch path on network filesystem")
	// ErrTooMany means that there are as many watchers, or watched directories, as
	// there may be.
	ErrTooMany = errors.New("too many watches")
	// ErrLost means that events were lost; what came before them was reported.
	ErrLost = errors.New("events were lost")
	// ErrGone means that the watched directory was removed, or its file system unmounted.
	ErrGone = errors.New("the watched directory is gone")
	// ErrClosed means that the watcher was closed.
	ErrClosed = errors.New("the watcher is closed")
)

// Event is one change.
type Event struct {
	// Name is relative to the watched directory, "." for that itself. It may be any
	// bytes but NUL.
	Name string
	Type filesystem.EventType
	// Entry is what was there when the event was read, if the watcher wants entries
	// and there was something.
	Entry *filesystem.EntryInfo
}

// Options say what a watcher reports.
type Options struct {
	// Recursive: also what changes in the directories below, those that are made
	// later included, on file systems where inotify sees it.
	Recursive bool
	// Entries: events of creating, writing and changing attributes have an Entry.
	Entries bool
	// Network: network file systems are watched as well.
	Network bool
}

// AsUser runs f with the rights of the user of that name, on a thread that has its
// own current directory and is given up afterwards; *asuser.Runner does.
type AsUser interface {
	Do(ctx context.Context, name string, f func(users.User) error) error
}

// Watcher watches one directory. Its methods may be called concurrently,
// but for Close.
type Watcher struct {
	set     *Set
	user    string
	root    string // absolute path of the watched directory
	options Options
	file    *os.File // the inotify descriptor
	raw     syscall.RawConn
	stop    func()        // ends run's wait for others
	done    chan struct{} // closed when run has ended
	tree    tree          // only Open, and then run, uses it

	mu    sync.Mutex // guards all below
	queue queue
	err   error         // why it is over
	more  chan struct{} // has an element when there is something to take
}

// init makes the watcher's inotify descriptor, which watches nothing yet.
func (w *Watcher) init() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	if err != nil {
		return fmt.Errorf("make a watcher: %w", err)
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return fmt.Errorf("make a watcher: %w", err)
	}
	w.done, w.more = make(chan struct{}), make(chan struct{}, 1)
	w.tree, w.queue.reserve = newTree(), w.set.take
	return nil
}

// More returns a channel that delivers when there may be something to Take.
func (w *Watcher) More() <-chan struct{} { return w.more }

// Take returns the events since the last time. When there are none and none will
// come, it says why: ErrLost, ErrTooMany, ErrGone, ErrClosed, or that the user's rights
// could not be had.
func (w *Watcher) Take() ([]Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if events := w.queue.take(); len(events) > 0 {
		w.signalIf(w.err != nil)
		return events, nil
	}
	return nil, w.err
}

// over reports whether the watcher has ended by itself.
func (w *Watcher) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// Close ends the watcher.
func (w *Watcher) Close() {
	w.end(ErrClosed)
	<-w.done
	w.mu.Lock()
	w.queue.take() // what it held is free for others
	w.mu.Unlock()
	w.set.remove(w)
}

// end has the watcher be over, and forget its watches.
func (w *Watcher) end(why error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = why
		w.signalIf(true)
	}
	w.mu.Unlock()
	w.stop()
	w.file.Close() // run sees that
}

// signalIf tells who waits for More. w.mu is held.
func (w *Watcher) signalIf(something bool) {
	if !something {
		return
	}
	select {
	case w.more <- struct{}{}:
	default: // it is told
	}
}

// report keeps an event for the client; its error is ErrLost.
func (w *Watcher) report(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.queue.put(e) {
		return fmt.Errorf("%w: more changed than is kept until it is taken (%d changes, %d MiB); look at the directory and watch it again", ErrLost, maxEvents, maxBytes>>20)
	}
	w.signalIf(true)
	return nil
}

// run reads events until the watcher is closed or over.
func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.set.forget(w)
	for {
		raw, err := w.read()
		if err == nil {
			err = w.handle(ctx, raw)
		}
		if err != nil {
			w.end(err)
			return
		}
	}
}

// maxRead bounds how much is read at once, in bytes.
const maxRead = 64 << 10

// buffers are only held while there is something to read.
var buffers = sync.Pool{New: func() any { return new([maxRead]byte) }}

// read waits for events and parses them.
func (w *Watcher) read() (changes []change, err error) {
	var failed error
	err = w.raw.Read(func(fd uintptr) bool {
		b := buffers.Get().(*[maxRead]byte)
		defer buffers.Put(b)
		n, err := unix.Read(int(fd), b[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case errors.Is(err, unix.EINTR):
		case err != nil:
			failed = fmt.Errorf("read events: %w", err)
		default:
			changes = parse(b[:n])
			w.tree.consumed += int64(n)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if errors.Is(err, os.ErrClosed) {
		err = ErrClosed
	}
	return changes, err
}

// control runs f with the inotify descriptor.
func (w *Watcher) control(f func(fd int) error) error {
	var failed error
	if err := w.raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return ErrClosed
	}
	return failed
}

// Wait waits until there is something to Take, or ctx ends.
func (w *Watcher) Wait(ctx context.Context) error {
	select {
	case <-w.more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// load is threads that write blocks without pause, into memory and files that nothing
// else uses. A block follows from its place and its number, so it can be checked
// wherever and whenever it is read.
type load struct{ writers []*writer }

// blockSize is the length of a block, in bytes: some cross pages of the host, and none
// begins where one of 64 KiB does but the first.
const blockSize = 20_000

// writer has blocks of its own.
type writer struct {
	name string
	mu   sync.Mutex // of all below; held while one block is written
	// numbers of the blocks that are there; 0: none yet.
	numbers []uint64
	next    int
	written int64
	put     func(i int, b []byte) error
	gets    []func(i int, b []byte) error // every way to read a block
	failed  error
}

const loadBlocks = 100 // of each writer

// startLoad starts one thread for each kind of memory, and, with files, of file.
func (g *guest) startLoad() error {
	if g.load != nil {
		return errors.New("it is loaded already")
	}
	g.load = &load{}
	for _, m := range []struct {
		name  string
		flags int
	}{{"private", anonymous}, {"shared", unix.MAP_SHARED | unix.MAP_ANONYMOUS}} {
		addr, err := mmap(0, loadBlocks*blockSize, readWrite, m.flags, -1)
		if err != nil {
			return err
		}
		g.load.add(m.name, addr, -1)
	}
	for _, name := range []string{"/root/load", "/dev/shm/load"} {
		f, err := os.OpenFile(filepath.Clean(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := f.Truncate(loadBlocks * blockSize); err != nil {
			return err
		}
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			return err
		}
		addr, err := mmap(0, loadBlocks*blockSize, readWrite, unix.MAP_SHARED, fd)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		g.load.add(name, addr, fd)
	}
	for _, w := range g.load.writers {
		go w.run() // until the sandbox ends
	}
	return nil
}

// add makes a writer of blocks in memory, or in a file that is mapped there.
func (l *load) add(name string, addr uintptr, fd int) {
	w := &writer{name: name, numbers: make([]uint64, loadBlocks)}
	place := func(i int) []byte { return at(addr+uintptr(i)*blockSize, blockSize) }
	stored := func(i int, b []byte) error { copy(place(i), b); return nil }
	loaded := func(i int, b []byte) error { copy(b, place(i)); return nil }
	w.put, w.gets = stored, []func(int, []byte) error{loaded}
	if fd >= 0 {
		w.put = func(i int, b []byte) error {
			if w.written%2 == 0 {
				return stored(i, b)
			}
			return whole(unix.Pwrite(fd, b, int64(i)*blockSize))(len(b))
		}
		w.gets = append(w.gets, func(i int, b []byte) error { return whole(unix.Pread(fd, b, int64(i)*blockSize))(len(b)) })
	}
	l.writers = append(l.writers, w)
}

func (w *writer) run() {
	runtime.LockOSThread()
	b := make([]byte, blockSize)
	for w.one(b) == nil {
	}
}

// one writes the next block.
func (w *writer) one(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.next
	block(b, i, w.numbers[i]+1)
	if w.failed = w.put(i, b); w.failed == nil {
		w.numbers[i]++
		w.written++
		w.next = (i + 1) % loadBlocks
	}
	return w.failed
}

// rest has no block written until it is told to go on.
func (l *load) rest() (goOn func()) {
	if l == nil {
		return func() {}
	}
	for _, w := range l.writers {
		w.mu.Lock()
	}
	return func() {
		for _, w := range l.writers {
			w.mu.Unlock()
		}
	}
}

// block makes the number-th content of a block.
func block(b []byte, i int, number uint64) {
	binary.NativeEndian.PutUint64(b, number)
	binary.NativeEndian.PutUint64(b[8:], uint64(i))
	fillBytes(b[16:], number*1_000_003+uint64(i)*2)
}

// check reads every block in every way, and returns how many have been written.
func (l *load) check() (written int64, err error) {
	if l == nil {
		return 0, errors.New("it is not loaded")
	}
	got, want := make([]byte, blockSize), make([]byte, blockSize)
	var errs []error
	for _, w := range l.writers {
		w.mu.Lock()
		errs = append(errs, w.failed, w.check(got, want))
		written += w.written
		w.mu.Unlock()
	}
	return written, errors.Join(errs...)
}

func (w *writer) check(got, want []byte) error {
	for i, number := range w.numbers {
		clear(want)
		if number > 0 {
			block(want, i, number)
		}
		for k, get := range w.gets {
			if err := get(i, got); err != nil {
				return err
			}
			if at, _ := differs(want, got, nil, func(int, []byte) error { return nil }); at >= 0 {
				return fmt.Errorf("%s, read by way %d: block %d, written %d times, is torn at byte %d: %#x, want %#x",
					w.name, k, i, number, at, got[at], want[at])
			}
		}
	}
	return nil
}

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

const (
	// maxEntries bounds the answer to ListDir. So many take 30 MB while it is made.
	maxEntries = 50_000
	// longList is from how many entries on one list is made at a time.
	longList = 2_000
	// maxDepth bounds how deep ListDir goes.
	maxDepth = 256
)

var (
	errTooMany = errors.New("too many entries")
	// errLong is never told: the list is made again, when it is its turn.
	errLong = errors.New("another long list is made")
)

// listing makes one answer to ListDir.
type listing struct {
	names   users.Names
	entries []*filesystem.EntryInfo
	// long is passed by the one listing that is long, from when it is until its end.
	long *gate
	held bool
}

// begin waits until a long listing can be made.
func (l *listing) begin(ctx context.Context) error {
	l.entries = nil // of as many as like to wait
	err := l.long.enter(ctx)
	l.held = err == nil
	return err
}

// end lets another long listing begin.
func (l *listing) end() {
	if l.held {
		l.long.leave()
	}
}

// make describes what is in the directory at path, down to depth levels. Its error is
// errLong if it must wait for another listing first.
func (l *listing) make(path string, depth int) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", path))
	}
	l.names, l.entries = users.ReadNames(), nil
	return l.add(path, depth, 0)
}

// grow makes sure that there may be n more entries.
func (l *listing) grow(dir string, n int) error {
	total := len(l.entries) + n
	if total > maxEntries {
		return fmt.Errorf("%w: with those in %s there are more than %d; list its parts", errTooMany, dir, maxEntries)
	}
	if total > longList && !l.held {
		if l.held = l.long.try(); !l.held {
			return errLong
		}
	}
	return nil
}

// add describes what is in a directory, in lexical order, down to depth levels. It
// does not follow links below dir. flags are those of readDir for dir.
func (l *listing) add(dir string, depth, flags int) error {
	found, err := readDir(dir, maxEntries-len(l.entries)+1, flags)
	if err != nil {
		return err
	}
	if err := l.grow(dir, len(found)); err != nil {
		return err
	}
	for _, d := range found {
		if err := l.grow(dir, 1); err != nil { // what is below those before counts too
			return err
		}
		path := filepath.Join(dir, d.Name())
		info, err := d.Info()
		if err != nil {
			continue // removed meanwhile
		}
		l.entries = append(l.entries, describe(path, info, l.names))
		if !info.IsDir() || depth <= 1 {
			continue
		}
		if err := l.add(path, depth-1, unix.O_NOFOLLOW); err != nil && !passes(err) {
			return err
		}
	}
	return nil
}

// passes reports whether a directory is left out of a list for this error: the user
// may not read it, or it was removed or replaced meanwhile.
func passes(err error) bool {
	return os.IsPermission(err) || os.IsNotExist(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// readDir returns at most n entries of a directory, in lexical order. Whatever else has
// come to be there is not opened: that could wait for ever. flags are added to those of
// open(2).
func readDir(dir string, n, flags int) ([]os.DirEntry, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	entries, err := f.ReadDir(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

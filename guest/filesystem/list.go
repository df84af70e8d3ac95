package filesystem

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"
)

const (
	// maxEntries bounds the answer to ListDir. So many take 30 MB while it is made.
	maxEntries = 50_000
	// longList is from how many entries on one list is made at a time.
	longList = 2_000
	// maxDepth bounds how deep ListDir goes.
	maxDepth = 256
)

var errTooMany = errors.New("too many entries")

// listing makes one answer to ListDir.
type listing struct {
	names   users.Names
	entries []*filesystem.EntryInfo
	// long is held by the one listing that is long, from when it is until its end.
	long *sync.Mutex
	held bool
}

// end lets another long listing begin.
func (l *listing) end() {
	if l.held {
		l.long.Unlock()
	}
}

// grow makes sure that there may be n more entries.
func (l *listing) grow(dir string, n int) error {
	total := len(l.entries) + n
	if total > maxEntries {
		return fmt.Errorf("%w: with those in %s there are more than %d; list its parts", errTooMany, dir, maxEntries)
	}
	if total > longList && !l.held {
		l.long.Lock()
		l.held = true
	}
	return nil
}

// add describes what is in a directory, in lexical order, down to depth levels. It
// does not follow links below dir.
func (l *listing) add(dir string, depth int) error {
	found, err := readDir(dir, maxEntries-len(l.entries)+1)
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
		if err := l.add(path, depth-1); err != nil && !os.IsPermission(err) && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// readDir returns at most n entries of a directory, in lexical order.
func readDir(dir string, n int) ([]os.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

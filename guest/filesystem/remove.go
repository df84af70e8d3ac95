package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// removeBatch is how many names are read before they are removed.
	removeBatch = 1024
	// maxRemoveDepth bounds the directories in each other; each is one descriptor.
	maxRemoveDepth = 1024
)

var errTooDeep = errors.New("too many directories in each other")

// removeAll removes a file, or a directory with all that is in it; nothing happens if
// there is none. Users may change what is there meanwhile: so nothing but a directory
// is opened, for anything else can make an open wait for ever (os.RemoveAll opens the
// parent, whatever that is), and no link is followed below path. It ends with ctx:
// whoever goes on making files cannot have it go on.
func removeAll(ctx context.Context, path string) error {
	return removal{ctx}.entry(unix.AT_FDCWD, path, 0)
}

type removal struct{ ctx context.Context }

// entry removes what has that name in an open directory.
func (r removal) entry(dir int, name string, depth int) error {
	err := unlink(dir, name)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	failed := func(err error) error { return &os.PathError{Op: "remove", Path: name, Err: err} }
	if depth >= maxRemoveDepth {
		return failed(fmt.Errorf("%w, more than %d; remove the inner ones first", errTooDeep, maxRemoveDepth))
	}
	fd, opening := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(opening, unix.ENOENT):
		return nil
	case errors.Is(opening, unix.ENOTDIR), errors.Is(opening, unix.ELOOP): // so there is nothing more to try
		return failed(err)
	case opening != nil:
		return failed(opening)
	}
	inside := r.contents(fd, name, depth+1)
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case inside == nil:
		return failed(err)
	}
	var in *os.PathError
	if errors.As(inside, &in) {
		in.Path = filepath.Join(name, in.Path)
	}
	return inside
}

// contents removes what is in a directory, which it closes, as far as it can. It
// returns the first error.
func (r removal) contents(fd int, name string, depth int) (first error) {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(removeBatch)
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(first, err)
		}
		removed := false
		for _, name := range names {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			err := r.entry(fd, name, depth)
			removed = removed || err == nil
			if first == nil {
				first = err
			}
		}
		if len(names) < removeBatch {
			return first
		}
		if !removed {
			continue
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil { // names that are gone may have hidden others
			return errors.Join(first, err)
		}
	}
}

// unlink removes a file or an empty directory.
func unlink(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return err
	}
	if e := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(e, unix.ENOTDIR) {
		return e
	}
	return err
}

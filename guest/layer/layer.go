// Package layer puts the writable layer of a root file system back in place: the tar
// that a sentry writes of it (TarRootfsUpperLayer) is unpacked over the same
// read-only file system in another life.
//
// What an overlay notes in its upper layer means here what it means there: a
// character device 0:0 is the absence of what was below, as is a hard link to one, for
// tmpfs has a single one; and a directory that is opaque has nothing of what was below.
//
// The tar was written by a sentry for its own sandbox, but users decide what is in
// it. No name leads out of the root: each part of a path is opened by itself, and no
// symbolic link is followed. Memory is bounded by the depth of the tree alone.
package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"cubesandbox/guest/agentapi"
)

// Limits of a tar.
const (
	maxEntries = 4 << 20
	// maxDepth bounds the directories in each other; each is one descriptor.
	maxDepth = 16 << 10
	// maxShown bounds a path in an error, in bytes.
	maxShown = 200
)

// Unpack unpacks a tar over the directory root, and says how much that was. What it
// did before an error stays.
func Unpack(root string, r io.Reader) (agentapi.Unpacked, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return agentapi.Unpacked{}, fmt.Errorf("open %s: %w", root, err)
	}
	u := &unpacker{tr: tar.NewReader(r), buf: make([]byte, bufferSize), open: []directory{{fd: fd}}}
	err = u.all()
	return u.done, errors.Join(err, u.leave(0))
}

// unpacker is one tar being unpacked.
type unpacker struct {
	tr   *tar.Reader
	buf  []byte
	open []directory // the root and, below each other, where the last entry was
	done agentapi.Unpacked
	// absence is the path of the newest device 0:0, or empty.
	absence string
}

func (u *unpacker) all() error {
	for {
		h, err := u.tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the tar behind entry %d: %w", u.done.Entries, err)
		}
		if u.done.Entries++; u.done.Entries > maxEntries {
			return errTooMany
		}
		if err := u.entry(h); err != nil {
			return fmt.Errorf("unpack %s: %w", shown(h.Name), err)
		}
	}
}

func shown(name string) string {
	if len(name) > maxShown {
		name = name[:maxShown] + "…"
	}
	return fmt.Sprintf("%q", name)
}

// entry puts one entry in place.
func (u *unpacker) entry(h *tar.Header) error {
	path, err := split(h.Name)
	if err != nil {
		return err
	}
	if len(path) == 0 {
		if h.Typeflag != tar.TypeDir {
			return errRoot
		}
		u.open[0].head = h
		return u.leave(1)
	}
	parent, name := path[:len(path)-1], path[len(path)-1]
	if err := u.walk(parent); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return u.directory(name, h)
	}
	at := u.here()
	switch h.Typeflag {
	case tar.TypeReg:
		return u.regular(at, name, h)
	case tar.TypeLink:
		if u.absence != "" && h.Linkname == u.absence {
			return absent(at, name)
		}
		return u.link(at, name, h)
	case tar.TypeSymlink, tar.TypeFifo, tar.TypeBlock, tar.TypeChar:
		return u.node(at, name, h)
	}
	return unknown(h.Typeflag)
}

// Why a tar is refused.
var (
	errTooMany = fmt.Errorf("the tar has more than %d entries", maxEntries)
	errRoot    = errors.New("the root is a directory")
)

func unknown(typeflag byte) error {
	return fmt.Errorf("entries of type %q are not known", typeflag)
}

// split takes a path of the tar apart. All of them begin with "./".
func split(path string) ([]string, error) {
	rest, ok := strings.CutPrefix(path, "./")
	if !ok {
		return nil, errors.New("the path does not begin with ./")
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" {
		return nil, nil
	}
	parts := strings.Split(rest, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return nil, errors.New("the path is not plain")
		}
	}
	if len(parts) > maxDepth {
		return nil, fmt.Errorf("more than %d directories are in each other", maxDepth)
	}
	return parts, nil
}

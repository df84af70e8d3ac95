package layer

import (
	"archive/tar"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// Check reads a tar to its end and says why Unpack would refuse it over the file
// system that it was made of. It writes nothing. What can be sought in is not read
// but for its headers. It takes some tens of bytes of memory for each entry.
func Check(r io.Reader) error {
	c := &checker{seed: maphash.MakeSeed(), seen: map[uint64]bool{}}
	tr := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the tar behind entry %d: %w", n, err)
		}
		if n >= maxEntries {
			return errTooMany
		}
		if err := c.entry(h); err != nil {
			return fmt.Errorf("check %s: %w", shown(h.Name), err)
		}
	}
}

// checker is one tar being checked.
type checker struct {
	seed maphash.Seed
	// seen has the paths of the entries before, by their hash, and whether they are
	// directories: of a million entries it must not hold the names.
	seen map[uint64]bool
}

func (c *checker) hash(path string) uint64 { return maphash.String(c.seed, path) }

func (c *checker) entry(h *tar.Header) error {
	path, err := split(h.Name)
	if err != nil {
		return err
	}
	name := strings.Join(path, "/")
	if len(path) == 0 && h.Typeflag != tar.TypeDir {
		return errRoot
	}
	for _, p := range path {
		if len(p) > unix.NAME_MAX {
			return unix.ENAMETOOLONG
		}
	}
	// An upper layer has each directory on the way to what is in it.
	if len(path) > 1 && !c.seen[c.hash(strings.Join(path[:len(path)-1], "/"))] {
		return errors.New("the directory that it is in is not there")
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeFifo, tar.TypeBlock, tar.TypeChar:
	case tar.TypeSymlink:
		if h.Linkname == "" {
			return errors.New("it is a symbolic link to nothing")
		}
	case tar.TypeLink:
		if err := c.link(h.Linkname); err != nil {
			return fmt.Errorf("link to %s: %w", shown(h.Linkname), err)
		}
	default:
		return unknown(h.Typeflag)
	}
	c.seen[c.hash(name)] = h.Typeflag == tar.TypeDir
	return lists(h)
}

// link checks that another name is of a file that came before.
func (c *checker) link(target string) error {
	path, err := split(target)
	if err != nil {
		return err
	}
	if dir, ok := c.seen[c.hash(strings.Join(path, "/"))]; !ok || dir {
		return errors.New("no file of that name came before")
	}
	return nil
}

// lists checks that access control lists can be read.
func lists(h *tar.Header) error {
	for key, text := range h.PAXRecords {
		if !strings.HasPrefix(key, xattrPrefix+aclPrefix) {
			continue
		}
		if _, err := base64.RawStdEncoding.DecodeString(text); err != nil {
			return fmt.Errorf("access control list: %w", err)
		}
	}
	return nil
}

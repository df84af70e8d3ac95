package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	cube "cubesandbox"
)

// collectAge is how long a file system stays that nothing names and nobody has open:
// whoever has put it may be about to use it.
const collectAge = time.Hour

// Collect frees what nobody needs, and says what that was; with dry it only says. That
// is what processes that are gone left in staging, images that they were removing in
// place, the pages of deleted images that others had memory in, images that a power cut
// has torn before they were durable, and file systems that no image names and nobody has
// open; the last two after an hour. While a manifest cannot be read no file system is
// freed, nor pages if it may be one that names them.
func (s *Store) Collect(ctx context.Context, dry bool) ([]cube.Garbage, error) {
	c := &collection{s: s, dry: dry}
	err := errors.Join(c.staging(ctx), c.images(ctx), c.bases(ctx), c.rootfs(ctx))
	if err != nil {
		err = fmt.Errorf("collect: %w", err)
	}
	return c.found, err
}

const whyTrash = "whoever was deleting it is gone"

// collection is one run.
type collection struct {
	s     *Store
	dry   bool
	found []cube.Garbage
}

// free notes garbage and removes it.
func (c *collection) free(g cube.Garbage, path string, remove func() error) error {
	g.Bytes = allocated(path)
	if !c.dry {
		if err := remove(); err != nil {
			return err
		}
	}
	c.found = append(c.found, g)
	return nil
}

// each does f with every name in a directory until ctx ends.
func each(ctx context.Context, dir string, f func(name, path string) error) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, f(e.Name(), filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

func (c *collection) staging(ctx context.Context) error {
	return each(ctx, c.s.stagingDir(), func(name, path string) error {
		g := cube.Garbage{Kind: cube.GarbageStaging, Name: name, Why: "whoever was writing it is gone"}
		if strings.HasPrefix(name, trashPrefix) {
			g.Kind, g.Why = cube.GarbageImage, whyTrash
		}
		return unheld(path, func() error {
			return c.free(g, path, func() error { return os.RemoveAll(path) })
		})
	})
}

func (c *collection) images(ctx context.Context) error {
	ids, err := c.s.ids()
	errs := []error{err}
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs,
			c.image(id, (*directory).removed, whyTrash),
			c.image(id, (*directory).torn, "it was never durable, and its manifest cannot be read"))
	}
	return errors.Join(errs...)
}

func (c *collection) image(id cube.ImageID, is func(*directory) (bool, error), why string) error {
	bytes, err := c.s.drop(id, is, c.dry)
	if err == nil && bytes > 0 {
		c.found = append(c.found, cube.Garbage{Kind: cube.GarbageImage, Name: string(id), Bytes: bytes, Why: why})
	}
	return err
}

// bases frees the pages of deleted images.
func (c *collection) bases(ctx context.Context) error {
	ids, err := c.s.unnamed()
	errs := []error{err}
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g := cube.Garbage{Kind: cube.GarbageImage, Name: string(id), Why: "it was deleted, and no image and no sandbox has memory in its pages any more"}
		if c.dry {
			err = c.s.ifUnneeded(id, func(d *directory) error {
				g.Bytes = allocated(d.path)
				return nil
			})
		} else {
			g.Bytes, err = c.s.freeBase(id)
		}
		if err == nil && g.Bytes > 0 {
			c.found = append(c.found, g)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *collection) rootfs(ctx context.Context) error {
	needed, err := c.s.Needed()
	if err != nil {
		return err
	}
	return each(ctx, c.s.rootfsDir(), func(name, path string) error {
		digest, ok := strings.CutSuffix(name, erofsSuffix)
		if ok && isDigest(digest) {
			if _, ok := needed.FileSystems[digest]; ok {
				return nil
			}
			return c.fileSystem(digest, path)
		}
		digest, ok = strings.CutSuffix(name, noteSuffix)
		if ok && exists(c.s.rootfsPath(digest)) || young(path) || !exists(path) {
			return nil
		}
		g := cube.Garbage{Kind: cube.GarbageStaging, Name: name, Why: "it belongs to no file system"}
		return c.free(g, path, func() error { return os.RemoveAll(path) })
	})
}

// fileSystem frees one that no image named a moment ago.
func (c *collection) fileSystem(digest, path string) error {
	return unheld(path, func() error {
		note := c.s.rootfsNotePath(digest)
		if young(note) || !exists(note) && young(path) {
			return nil
		}
		// With the lock: what was made with it since has an image by now, or no life.
		needed, err := c.s.Needed()
		if err != nil {
			return err
		}
		if _, ok := needed.FileSystems[digest]; ok {
			return nil
		}
		g := cube.Garbage{Kind: cube.GarbageRootfs, Name: digest, Why: "no image names it, and no sandbox has it open"}
		return c.free(g, path, func() error {
			if err := os.Remove(note); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			c.s.rootfs.forget(digest)
			return os.Remove(path)
		})
	})
}

// young reports whether a file was changed less than an hour ago.
func young(path string) bool {
	fi, err := os.Lstat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // nobody can tell
	}
	return time.Since(fi.ModTime()) < collectAge
}

// allocated is what a file or directory takes on disk, in bytes.
func allocated(path string) (bytes int64) {
	filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := e.Info(); err == nil {
			bytes += fi.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return bytes
}

package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cubesandbox/internal/progress"
)

// builderVersion is part of every key: raise it when a root file system comes out
// differently for the same definition.
const builderVersion = "3"

const (
	imageName   = "rootfs.erofs"
	recordName  = "rootfs.json"
	partialName = ".partial"
	lockName    = ".lock"
)

// cache keeps finished root file systems: DIR/KEY/rootfs.erofs and rootfs.json.
// DIR/KEY.partial is one in the making and DIR/KEY.lock, once there, stays.
type cache struct{ dir string }

// entry is a place in the cache that is locked for one builder.
type entry struct {
	c       *cache
	key     string
	partial string
	lock    *os.File
}

// cacheKey names what a root file system is made from: of the definition, what
// plays a part in that, so that other limits do not cost another one.
func cacheKey(def *Definition, suite string, sources []source) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "cube rootfs %s %s %s\n%s\n", builderVersion, debianArch(), suite, deb822(sources))
	fmt.Fprintf(h, "%q %q %q %+v\n", def.Packages, def.Hooks, def.Checks, def.User)
	root := os.DirFS(def.dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == DefinitionFile {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: is no plain file; a template's folder may hold nothing else", filepath.Join(def.dir, name))
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %t %x\n", name, info.Mode()&0o111 != 0, sha256.Sum256(text))
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// find returns what is finished under key.
func (c *cache) find(key string) (Rootfs, bool) {
	var r Rootfs
	text, err := os.ReadFile(filepath.Join(c.dir, key, recordName))
	if err != nil || json.Unmarshal(text, &r) != nil {
		return Rootfs{}, false
	}
	r.Path, r.Cached = filepath.Join(c.dir, key, imageName), true
	st, err := os.Stat(r.Path)
	if err != nil || st.Size() != r.Bytes {
		return Rootfs{}, false
	}
	now := time.Now() // for prune; where it cannot be set, nothing worse comes of it
	_ = os.Chtimes(filepath.Join(c.dir, key, recordName), now, now)
	return r, true
}

// begin locks key, removes what killed builders left, and makes an empty partial
// folder.
func (c *cache) begin(ctx context.Context, key string, report *progress.Reporter) (*entry, error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := c.lock(ctx, key, report)
	if err != nil {
		return nil, err
	}
	e := &entry{c: c, key: key, partial: filepath.Join(c.dir, key+partialName), lock: lock}
	if err := errors.Join(os.RemoveAll(e.partial), c.sweep()); err != nil {
		lock.Close()
		return nil, err
	}
	if err := os.Mkdir(e.partial, 0o755); err != nil {
		lock.Close()
		return nil, err
	}
	return e, nil
}

// lock waits for another builder of the same key, until ctx ends.
func (c *cache) lock(ctx context.Context, key string, report *progress.Reporter) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(c.dir, key+lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return f, nil
	}
	report.Note("  another process makes this template; waiting for it")
	// The kernel cannot wake us for a lock and for ctx at once: look again.
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for the builder of %s: %w", key, ctx.Err())
		case <-look.C:
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				return f, nil
			}
		}
	}
}

// sweep removes partial folders whose builders are gone.
func (c *cache) sweep() error {
	partials, err := filepath.Glob(filepath.Join(c.dir, "*"+partialName))
	if err != nil {
		return err
	}
	for _, partial := range partials {
		f, err := os.OpenFile(strings.TrimSuffix(partial, partialName)+lockName, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.RemoveAll(partial)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// publish makes the partial folder the finished one.
func (e *entry) publish(r Rootfs) (Rootfs, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return Rootfs{}, err
	}
	if err := os.WriteFile(filepath.Join(e.partial, recordName), append(text, '\n'), 0o644); err != nil {
		return Rootfs{}, err
	}
	for _, name := range []string{imageName, recordName} {
		if err := syncFile(filepath.Join(e.partial, name)); err != nil {
			return Rootfs{}, err
		}
	}
	done := filepath.Join(e.c.dir, e.key)
	if err := os.RemoveAll(done); err != nil {
		return Rootfs{}, err
	}
	if err := os.Rename(e.partial, done); err != nil {
		return Rootfs{}, err
	}
	if err := e.c.prune(); err != nil {
		return Rootfs{}, err
	}
	r.Path = filepath.Join(done, imageName)
	return r, nil
}

// syncFile makes sure that a power cut after the rename finds the content.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// close lets the next builder in and removes what was not published.
func (e *entry) close() {
	// What cannot be removed now is removed by the next builder.
	_ = os.RemoveAll(e.partial)
	_ = e.lock.Close()
}

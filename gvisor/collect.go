package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	cube "cubesandbox"
)

// Collect removes the installed versions that no image needs and that nothing uses,
// and says which they are. dry: it only says so. It also ends sentries that are kept
// booted for file systems which no image has any more: they would keep those.
func (e *Engine) Collect(ctx context.Context, dry bool) ([]cube.Garbage, error) {
	var out []cube.Garbage
	if !dry {
		n, err := e.images.Needed()
		if err != nil {
			return nil, err
		}
		e.pools.keepOnly(n.FileSystems)
	}
	names, err := e.keepers.engines.names()
	if err != nil {
		return nil, fmt.Errorf("installed engines: %w", err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if e.keepers.find(name) != nil {
			continue
		}
		g, found, err := e.keepers.engines.collect(name, dry, func() (bool, error) { return e.needed(name) })
		if err != nil {
			return out, fmt.Errorf("engine %s: %w", name, err)
		}
		if found {
			out = append(out, g)
		}
	}
	return out, nil
}

// needed reports whether an image names a version. One that cannot be read may.
func (e *Engine) needed(version string) (bool, error) {
	n, err := e.images.Needed()
	_, is := n.Engines[version]
	return is || err != nil, err
}

// collect removes a version that is in no use and not needed, nor was it installed
// in the last hour, and reports whether that is so. needed is asked when nobody can begin to use it any more: a keeper
// that made an image of this version has ended by then.
func (en engines) collect(version string, dry bool, needed func() (bool, error)) (_ cube.Garbage, found bool, err error) {
	unlock, err := en.lock()
	if err != nil {
		return cube.Garbage{}, false, err
	}
	defer unlock()
	used, err := en.inUse(version)
	if err != nil || used {
		return cube.Garbage{}, false, err
	}
	if is, err := needed(); err != nil || is {
		return cube.Garbage{}, false, err
	}
	dir := filepath.Join(en.dir, version)
	if runs, err := executed(dir); err != nil || runs || youngDir(dir) {
		return cube.Garbage{}, false, err
	}
	g := cube.Garbage{Kind: cube.GarbageEngine, Name: version, Why: "no image was made by it, and nothing runs it"}
	if g.Bytes, err = allocated(dir); err != nil || dry {
		return g, err == nil, err
	}
	return g, true, os.RemoveAll(dir)
}

// inUse reports whether a keeper or an engine has locked a version. The caller
// holds the lock of the directory.
func (en engines) inUse(version string) (bool, error) {
	f, err := os.Open(filepath.Join(en.dir, version, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // nobody ever has
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// collectAge is how long a version stays that nobody uses.
const collectAge = time.Hour

// youngDir reports whether a directory was changed less than that ago.
func youngDir(dir string) bool {
	fi, err := os.Stat(dir)
	return err == nil && time.Since(fi.ModTime()) < collectAge
}

// executed reports whether a process executes a program of a directory: sentries whose
// keeper was killed, in whatever run directory, hold no lock.
func executed(dir string) (bool, error) {
	var mine []fs.FileInfo
	for _, name := range programs {
		if fi, err := os.Stat(filepath.Join(dir, name)); err == nil {
			mine = append(mine, fi)
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return false, err
	}
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil && strings.HasPrefix(path, dir+"/") {
			return true, nil // or did, and it was replaced by a newer build
		}
		// A process in a mount namespace of its own may show another path.
		fi, err := os.Stat(link)
		if err == nil && slices.ContainsFunc(mine, func(m fs.FileInfo) bool { return os.SameFile(m, fi) }) {
			return true, nil
		}
	}
	return false, nil
}

// allocated is what a directory takes on disk, in bytes.
func allocated(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		total += st.Blocks * 512
		return err
	})
	return total, err
}

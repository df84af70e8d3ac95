package gvisor

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/image"
)

// pageCache reads the pages of images that are about to be used into the page cache. Linux
// charges a page to the cgroup of whoever brings it in; so they are charged to ours, and
// not to the sandbox that happens to touch them first, for all others to use. And they
// are there when it does.
type pageCache struct {
	mu     sync.Mutex // guards looked
	looked map[cube.BaseID]time.Time
}

const (
	// lookAgain is how long it is taken for granted that pages stay where they are.
	lookAgain = 10 * time.Second
	// readAtOnce is how much is asked for at once: of more than a disk's read-ahead Linux
	// forgets the rest, and that is 128 KiB at least.
	readAtOnce = 128 << 10
)

// due reports whether it is to be looked after pages, which is then done.
func (c *pageCache) due(base cube.BaseID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked[base]) < lookAgain {
		return false
	}
	for other, at := range c.looked {
		if now.Sub(at) >= lookAgain {
			delete(c.looked, other)
		}
	}
	c.looked[base] = now
	return true
}

// readAhead begins to read what of an image, and of those in whose pages its memory lies, is
// not in the page cache. The files may be closed meanwhile. What it cannot do is done by the
// sandboxes that need it.
func (e *Engine) readAhead(f *image.Files) {
	pages := append([]image.Base{{ID: f.Image.Base, Pages: f.Pages()}}, f.Bases...)
	for _, p := range pages {
		if p.ID == "" || !e.cache.due(p.ID) {
			continue
		}
		fd, err := unix.FcntlInt(p.Pages.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			e.log.Warn("pages of an image are not read ahead", "base", p.ID, "error", err)
			continue
		}
		own := os.NewFile(uintptr(fd), p.Pages.Name())
		e.background(func() {
			defer own.Close()
			if err := e.fill(own); err != nil {
				e.log.Warn("pages of an image are not read ahead", "base", p.ID, "error", err)
			}
		})
	}
}

// fill reads a file into the page cache, unless nearly all is there, or it would take more
// than a quarter of the memory that is free.
func (e *Engine) fill(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var in unix.Cachestat_t
	err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: uint64(st.Size())}, &in, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 6.5, or forbidden
		return nil
	}
	if err != nil {
		return os.NewSyscallError("cachestat", err)
	}
	missing := st.Size() - int64(in.Cache)*int64(os.Getpagesize())
	if missing <= st.Size()/64 || missing > memAvailable()/4 {
		return nil
	}
	for off := int64(0); off < st.Size() && e.ctx.Err() == nil; off += readAtOnce {
		if err := unix.Fadvise(int(f.Fd()), off, readAtOnce, unix.FADV_WILLNEED); err != nil {
			return os.NewSyscallError("fadvise", err)
		}
	}
	return nil
}

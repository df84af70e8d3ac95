package differential

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reclaimed counts pages that were taken out of the page cache.
var reclaimed atomic.Int64

// reclaim takes the files of images out of the page cache, again and again, until stop:
// those with a name, and those that only processes hold. What is mapped is not let go for
// that; it is taken from the cgroups of the sandboxes, as where the host has no memory
// left.
func reclaim(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if err := errors.Join(evictAll(ctx), squeeze()); err != nil && ctx.Err() == nil {
				done <- fmt.Errorf("take images out of the page cache: %w", err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				done <- nil
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-done
	}
}

func evictAll(ctx context.Context) error {
	err := filepath.WalkDir(filepath.Join(s.StateDir(), "images"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = evict(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was deleted meanwhile
		}
		return err
	})
	if err != nil {
		return err
	}
	pids := []int{s.PID()}
	lives, err := s.Lives(ctx)
	if err != nil {
		return err
	}
	for _, l := range lives {
		pids = append(pids, l.PID)
	}
	for _, pid := range pids {
		held, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return err
		}
		for _, fd := range held {
			// Images that have no name yet, or none any more.
			if to, err := os.Readlink(fd); err != nil || !strings.HasPrefix(to, s.StateDir()) || !strings.HasSuffix(to, "(deleted)") {
				continue
			}
			if err := evict(fd); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// squeeze has the kernel reclaim what it can of the sandboxes' cgroups, mapped pages of
// files included. It fails as such where little is left, and is not there on older
// kernels with cgroup version 2.
func squeeze() error {
	for file, word := range map[string]string{
		filepath.Join("/sys/fs/cgroup/memory", s.Where.Cgroup, "memory.force_empty"): "0",
		filepath.Join("/sys/fs/cgroup", s.Where.Cgroup, "memory.reclaim"):            "4G",
	} {
		err := os.WriteFile(file, []byte(word), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// evict takes one file's pages out. What is dirty is written first.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() == 0 || !fi.Mode().IsRegular() {
		return err
	}
	before, err := resident(f, fi.Size())
	if err != nil || before == 0 {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	after, err := resident(f, fi.Size())
	reclaimed.Add(max(0, before-after))
	return err
}

// resident counts the pages of a file that are in the page cache.
func resident(f *os.File, size int64) (n int64, err error) {
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	pages := make([]byte, (size+4095)/4096)
	if err := mincore(b, pages); err != nil {
		return 0, err
	}
	for _, p := range pages {
		n += int64(p & 1)
	}
	return n, nil
}

// mincore is the system call.
func mincore(b, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return fmt.Errorf("mincore: %w", errno)
	}
	return nil
}

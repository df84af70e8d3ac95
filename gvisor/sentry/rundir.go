package sentry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockName is the file whose lock a keeper holds for life, with its pid inside:
// two keepers of one directory would take each other's sentries for their own.
const lockName = "keeper.pid"

// makeRunDir makes the run directory, or sees that nobody else can write to the one
// that is there: what is in it is believed.
func makeRunDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("run directory %q: want an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return fmt.Errorf("run directory %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("run directory %s belongs to uid %d, and this process is uid %d; use a directory of your own", dir, st.Uid, os.Geteuid())
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("run directory %s can be written to by others (mode %o); run chmod go-w on it after looking at what is inside, or use another", dir, st.Mode&0o7777)
	}
	return nil
}

// lockRunDir waits until this is the only keeper of the directory.
func lockRunDir(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// Nothing but a signal ends a wait for a lock. When ctx ends first, so does
	// this process, and the goroutine with it.
	got := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
				got <- err
				return
			}
		}
	}()
	select {
	case err = <-got:
	case <-ctx.Done():
		return nil, fmt.Errorf("another keeper holds %s: %w", path, ctx.Err())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// ownStdio gives this process standard files of its own. gVisor changes the
// owner of what it hands on as a guest's standard files, which must not be the
// host's /dev/null.
func ownStdio(dir string) error {
	path := filepath.Join(dir, "null")
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("null device of our own: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		// The run directory is on a nodev mount: an empty file does as well, for the
		// agent writes nothing there.
		os.Remove(path)
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err != nil {
		return err
	}
	inherited = [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	os.Stdin, os.Stdout, os.Stderr = f, f, f
	return nil
}

// inherited are the standard files that this process was started with. They are held
// since one that nobody holds is closed, and 0 is then the number of the next that is
// opened.
//
//lint:ignore U1000 that they are held is their use
var inherited [3]*os.File

// closeInherited keeps from sentries what this process got from whoever started it.
func closeInherited() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	return nil
}

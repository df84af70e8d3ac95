package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"cubesandbox/internal/powercut"
)

// Disk says what file system the state directory is on.
type Disk struct {
	// Size in bytes; 0: 12 GiB. Its file is sparse.
	Size int64
	// Journal: it has one, as that of a machine that is to survive a power cut. Without
	// one, full is full.
	Journal bool
	// Options of its mount, beyond those that it always has.
	Options string
}

// OpenServerOn is OpenServer on such a disk.
func OpenServerOn(ctx context.Context, d Disk, flags ...string) (*Server, error) {
	l, err := openOn(ctx, 0, d)
	if err != nil {
		return nil, err
	}
	// The server would take the witness in: it is a snapshot without a record.
	if err := errors.Join(l.Images.Delete(l.Witness), l.Session.Close()); err != nil {
		return nil, errors.Join(err, l.removeFiles())
	}
	s := &Server{Lab: l, flags: flags}
	if d.Journal {
		err = s.plant()
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// makeFileSystem makes a file with an empty ext4 in it.
func (d Disk) makeFileSystem(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(d.Size), f.Close()); err != nil {
		return err
	}
	// Nothing is reserved for root.
	args := []string{"-q", "-F", "-m", "0"}
	if !d.Journal {
		args = append(args, "-O", "^has_journal")
	}
	return command(ctx, "mkfs.ext4", append(args, file)...)
}

// mount mounts the file system in a file.
func (d Disk) mount(ctx context.Context, file, dir string) error {
	options := "loop,noinit_itable" // nothing writes to it but us
	if d.Options != "" {
		options += "," + d.Options
	}
	if err := powercut.Mount(ctx, "-o", options, file, dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}

// Used is what is stored in the state directory's file system, in bytes.
func (l *Lab) Used() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(l.opt.StateDir, &st)
	return int64(st.Blocks-st.Bfree) * st.Bsize, err
}

// LeaveFree leaves so many bytes in the state directory's file system free, in
// whole blocks, and the last few that the file system holds back for itself only
// where there is room for them.
func (l *Lab) LeaveFree(t *testing.T, free int64) (undo func()) {
	t.Helper()
	path := filepath.Join(l.opt.StateDir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	undo = func() {
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			t.Error(err)
		}
	}
	if err := l.fill(f, free); err != nil {
		undo()
		t.Fatalf("leave %d bytes free: %v", free, err)
	}
	return undo
}

// fill has a file take all but free bytes. What the file system counts as free it
// does not always give to one file: that is asked again in smaller pieces.
func (l *Lab) fill(f *os.File, free int64) error {
	var size int64
	for piece := int64(1) << 30; piece >= 4096; {
		have, err := l.Free()
		if err != nil {
			return err
		}
		want := min(piece, have-free) &^ 4095
		if want <= 0 && have > free {
			return nil // less than a block
		}
		if want <= 0 {
			break
		}
		err = unix.Fallocate(int(f.Fd()), 0, size, want)
		switch {
		case err == nil:
			size += want
		case errors.Is(err, unix.ENOSPC):
			piece /= 4
		default:
			return err
		}
	}
	if free > 0 {
		return l.trim(f, size, free)
	}
	// What is kept for itself is given out in the end.
	block := make([]byte, 4096)
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	for {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// trim gives back what the filler's own tree of extents has taken.
func (l *Lab) trim(f *os.File, size, free int64) error {
	have, err := l.Free()
	if err != nil {
		return err
	}
	if short := (free - have + 4095) &^ 4095; short > 0 {
		if short > size {
			return fmt.Errorf("there are %d bytes", have)
		}
		return f.Truncate(size - short)
	}
	return nil
}

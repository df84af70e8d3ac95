// Package powercut is for tests of what survives a power cut: a journaled file system
// of their own, in a file behind a loop device, which commits nothing by time. What was
// not synced is in memory alone, and so not in a copy of the file. It needs root.
package powercut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// options are those of each mount: ext4 writes its tables when it is made, and commits
// when it is told to, or after 10 minutes.
const options = "loop,commit=600,noinit_itable"

// Disk is such a file system, mounted at Dir until the test ends.
type Disk struct {
	Dir  string
	file string
}

// New makes one of the given size in bytes.
func New(t *testing.T, size int64) Disk {
	t.Helper()
	return In(t, t.TempDir(), size)
}

// In makes one whose file is in a directory, which may itself be too small for it. mkfs
// are further arguments of mkfs.ext4.
func In(t *testing.T, dir string, size int64, mkfs ...string) Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts a file system: run it as root")
	}
	file := filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", append(append([]string{"-q", "-F"}, mkfs...), file)...)
	d, unmount := mount(t, file)
	t.Cleanup(unmount)
	return d
}

// Cut mounts the disk as it is found after the power has gone now, beside the one that
// goes on. remove takes it away; what is open on it must be closed by then.
func (d Disk) Cut(t *testing.T) (after Disk, remove func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "after")
	run(t, "cp", "--sparse=always", d.file, file)
	after, unmount := mount(t, file)
	return after, func() {
		unmount()
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

func mount(t *testing.T, file string) (d Disk, unmount func()) {
	t.Helper()
	d = Disk{t.TempDir(), file}
	if err := Mount(t.Context(), "-o", options, file, d.Dir); err != nil {
		t.Fatal(err)
	}
	return d, func() { run(t, "umount", d.Dir) }
}

// busyTime bounds how long a loop device may be busy.
const busyTime = 10 * time.Second

// Mount runs mount(8), again while the loop device is busy: whoever looks for a free one,
// in another package's tests, holds each for a moment.
func Mount(ctx context.Context, args ...string) error {
	for deadline := time.Now().Add(busyTime); ; {
		out, err := exec.CommandContext(ctx, "mount", args...).CombinedOutput()
		if err == nil {
			return nil
		}
		if !bytes.Contains(out, []byte("busy")) || time.Now().After(deadline) {
			return fmt.Errorf("mount: %w: %.300s", err, out)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v: %.300s", name, args, err, out)
	}
}

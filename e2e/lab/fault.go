package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/internal/powercut"
)

// Faults are brought about on the host, behind the engine's back. Each returns
// what takes it away again.

func (l *Lab) pages(id cube.ImageID) string { return filepath.Join(l.Images.Dir(id), "pages") }

// FillDisk leaves no free block in the state directory.
func (l *Lab) FillDisk(t *testing.T) (undo func()) {
	t.Helper()
	path := filepath.Join(l.opt.StateDir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	free, err := l.Free()
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, free)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	// What the file system keeps for itself it gives out in the end.
	block := make([]byte, 4096)
	for err = nil; err == nil; {
		_, err = f.Write(block)
		if err == nil {
			_, err = f.Seek(0, io.SeekEnd)
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			t.Error(err)
		}
	}
}

// HideSentry takes away the program that every new life is.
func (l *Lab) HideSentry(t *testing.T) (undo func()) {
	t.Helper()
	path := filepath.Join(l.opt.StateDir, "engines", l.Engine.Version(), "cube-sentry")
	if err := os.Rename(path, path+".hidden"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(path+".hidden", path); err != nil {
			t.Error(err)
		}
	}
}

// TakeMemory makes sandboxes until the engine refuses one more.
func (l *Lab) TakeMemory(t *testing.T, e cube.Engine) (undo func()) {
	t.Helper()
	var ids []cube.SandboxID
	for {
		s, err := e.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Witness})
		if errors.Is(err, cube.ErrNoCapacity) {
			break
		}
		if err != nil {
			t.Fatalf("take memory: %v", err)
		}
		ids = append(ids, s.ID)
	}
	return func() {
		for _, id := range ids {
			if err := e.Kill(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
	}
}

// ownPages puts a copy in the place of an image's pages: what is done to it is not done to
// sandboxes that have memory there.
func (l *Lab) ownPages(t *testing.T, id cube.ImageID) {
	t.Helper()
	path := l.pages(id)
	if err := command(t.Context(), "cp", "-p", path, path+".own"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".own", path); err != nil {
		t.Fatal(err)
	}
}

// Truncate cuts the pages of an image in half.
func (l *Lab) Truncate(t *testing.T, id cube.ImageID) {
	t.Helper()
	l.ownPages(t, id)
	if err := halve(l.pages(id)); err != nil {
		t.Fatal(err)
	}
}

func halve(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, fi.Size()/2)
}

// Alter overwrites a mebibyte in the middle of an image's pages.
func (l *Lab) Alter(t *testing.T, id cube.ImageID) {
	t.Helper()
	l.ownPages(t, id)
	f, err := os.OpenFile(l.pages(id), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("altered ", 1<<17)), fi.Size()/2); err != nil {
		t.Fatal(err)
	}
}

// Shorten cuts the pages of an image in half at the moment when the engine reads
// them: after it has looked at their length.
func (l *Lab) Shorten(t *testing.T, id cube.ImageID) (undo func()) {
	t.Helper()
	l.ownPages(t, id)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, l.pages(id), unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	opened := os.NewFile(uintptr(fd), "inotify")
	done := make(chan error, 1)
	go func() {
		// The first open looks at the length; it is opened again to be read.
		event := make([]byte, unix.SizeofInotifyEvent)
		for range 2 {
			if _, err := io.ReadFull(opened, event); err != nil {
				done <- fmt.Errorf("the pages were never opened to be read: %w", err)
				return
			}
		}
		done <- halve(l.pages(id))
	}()
	return func() {
		opened.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// BreakDisk puts the pages of an image on a disk that cannot read the second half.
func (l *Lab) BreakDisk(t *testing.T, id cube.ImageID) (undo func()) {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(l.opt.StateDir), "broken-")
	if err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(dir, "mount")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(l.pages(id))
	if err != nil {
		t.Fatal(err)
	}
	disk, size := filepath.Join(dir, "disk"), fi.Size()*3/2+16<<20
	ctx := t.Context()
	if err := (Disk{Size: size}).makeFileSystem(ctx, disk); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", disk).Output()
	if err != nil {
		t.Fatalf("losetup: %v", err)
	}
	device := strings.TrimSpace(string(out))
	steps := []func() error{
		func() error { return powercut.Mount(ctx, device, mount) },
		func() error { return command(ctx, "cp", l.pages(id), mount) },
		// Mounted anew, nothing of it is in memory.
		func() error { return unix.Unmount(mount, 0) },
		func() error { return powercut.Mount(ctx, "-o", "ro", device, mount) },
		// Which it is with the mount: where this test is killed, nothing is left of it.
		func() error { return command(ctx, "losetup", "--detach", device) },
		func() error { return os.Truncate(disk, size/3) },
		func() error { return unix.Mount(filepath.Join(mount, "pages"), l.pages(id), "", unix.MS_BIND, "") },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("a broken disk: %v", err)
		}
	}
	return func() {
		if b, err := os.ReadFile(filepath.Join(mount, "pages")); !errors.Is(err, unix.EIO) {
			t.Errorf("the broken disk gave %d bytes and %v, want an I/O error", len(b), err)
		}
		err := errors.Join(unix.Unmount(l.pages(id), 0), unix.Unmount(mount, 0), os.RemoveAll(dir))
		if err != nil {
			t.Error(err)
		}
	}
}

// Age makes an image that of another engine version.
func (l *Lab) Age(t *testing.T, id cube.ImageID) {
	t.Helper()
	l.Forge(t, id, `("engine": *")[^"]*"`, `${1}20200101000000-0000000000aa-stock-amd64"`)
}

// Forge changes what the manifest of an image says, as if it had been written so.
func (l *Lab) Forge(t *testing.T, id cube.ImageID, what, by string) {
	t.Helper()
	path := filepath.Join(l.Images.Dir(id), "manifest.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	forged := regexp.MustCompile(what).ReplaceAll(b, []byte(by))
	if string(forged) == string(b) {
		t.Fatalf("%s has no %s", path, what)
	}
	if err := os.WriteFile(path, sealed(forged), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sealed gives a manifest another checksum, which is its last line: the CRC-32C of all
// before it.
func sealed(manifest []byte) []byte {
	body := manifest[:bytes.LastIndexByte(manifest[:len(manifest)-1], '\n')+1]
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(bytes.Clone(body), "{\"crc32c\":\"%08x\"}\n", sum)
}

package image

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	cube "cubesandbox"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fill writes what an engine would.
func fill(t *testing.T, w *Writer, pages int) []byte {
	t.Helper()
	data := make([]byte, pages)
	rand.Read(data)
	for i, b := range [][]byte{[]byte("kernel"), []byte("meta"), data} {
		if _, err := w.Files[i].Write(b); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func begin(t *testing.T, s *Store, id cube.ImageID) *Writer {
	t.Helper()
	w, err := s.Begin(id, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func publish(t *testing.T, s *Store) (cube.Image, []byte) {
	t.Helper()
	w := begin(t, s, cube.NewSnapshotID())
	data := fill(t, w, 3<<20+4096)
	im, err := w.Publish(cube.Image{Kind: cube.KindSnapshot, Engine: "e"}, false)
	if err != nil {
		t.Fatal(err)
	}
	return im, data
}

// leftovers are the names in the staging directory.
func leftovers(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.stagingDir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAPublishedImageIsWholeAndReadsBack(t *testing.T) {
	s := open(t)
	im, data := publish(t, s)
	if im.PagesBytes != int64(len(data)) || im.Bytes != int64(len(data)+len("kernel")+len("meta")) {
		t.Errorf("got sizes %d, %d", im.PagesBytes, im.Bytes)
	}
	f, err := s.OpenImage(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f.Files[pagesIndex])
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("pages differ from what was saved (%v)", err)
	}
	all, err := s.Images()
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0], im) {
		t.Errorf("got list %v, %v; want %v", all, err, im)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
}

func TestAnAbortedImageLeavesNothing(t *testing.T) {
	s := open(t)
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	w.Abort()
	if _, err := s.Image(w.id); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
}

func TestAnIDIsGivenOnce(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	if _, err := s.Begin(im.ID, 0); !errors.Is(err, cube.ErrExists) {
		t.Errorf("begin: got %v, want ErrExists", err)
	}
	id := cube.NewSnapshotID()
	a, b := begin(t, s, id), begin(t, s, id)
	fill(t, a, 4096)
	fill(t, b, 4096)
	if _, err := a.Publish(cube.Image{}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Publish(cube.Image{}, false); !errors.Is(err, cube.ErrExists) {
		t.Errorf("second publish: got %v, want ErrExists", err)
	}
}

func TestAHoleInThePagesIsAFullDisk(t *testing.T) {
	s := open(t)
	for name, spoil := range map[string]func(f *os.File) error{
		"hole in the middle": func(f *os.File) error { return syscall.Fallocate(int(f.Fd()), 3, 1<<20, 1<<20) },
		"hole at the end":    func(f *os.File) error { return f.Truncate(4 << 20) },
		"cut within a page":  func(f *os.File) error { return f.Truncate(2<<20 + 100) },
	} {
		w := begin(t, s, cube.NewSnapshotID())
		fill(t, w, 3<<20)
		if err := spoil(w.Files[pagesIndex]); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Publish(cube.Image{}, false); !errors.Is(err, cube.ErrNoSpace) {
			t.Errorf("%s: got %v, want ErrNoSpace", name, err)
		}
	}
}

func TestRoomIsSetAsideBeforeAnythingIsWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts a small tmpfs: run it as root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(cube.NewSnapshotID(), 64<<20); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
	w, err := s.Begin(cube.NewSnapshotID(), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 4096)
	im, err := w.Publish(cube.Image{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(s.Dir(im.ID), "pages"), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("the pages take %d bytes on disk (%v); what was set aside is not given back", st.Blocks*512, err)
	}
}

func TestAFileOfAnotherLengthIsNamed(t *testing.T) {
	s := open(t)
	for _, name := range memoryNames {
		im, _ := publish(t, s)
		path := filepath.Join(s.Dir(im.ID), name)
		if err := os.Truncate(path, 3); err != nil {
			t.Fatal(err)
		}
		_, err := s.OpenImage(im.ID)
		var c *cube.CorruptError
		if !errors.As(err, &c) || c.File != name || !errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("%s: got %v, want a CorruptError that names it", name, err)
		}
	}
}

func TestAChangedByteIsFoundAndACopyIsFine(t *testing.T) {
	s := open(t)
	for _, name := range memoryNames {
		im, _ := publish(t, s)
		path := filepath.Join(s.Dir(im.ID), name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rewrite := func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		rewrite()
		f, err := s.OpenImage(im.ID)
		if err != nil {
			t.Fatalf("%s: a copy of the file: %v", name, err)
		}
		f.Close()
		b[len(b)-1] ^= 1
		rewrite()
		_, err = s.OpenImage(im.ID)
		var c *cube.CorruptError
		if !errors.As(err, &c) || c.File != name {
			t.Errorf("%s: a changed byte: got %v, want a CorruptError that names it", name, err)
		}
	}
}

func TestDeleteHidesAndFrees(t *testing.T) {
	s := open(t)
	im, data := publish(t, s)
	f, err := s.OpenImage(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Delete(im.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(im.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("second delete: got %v, want ErrNotFound", err)
	}
	if got, err := io.ReadAll(f.Files[pagesIndex]); err != nil || !bytes.Equal(got, data) {
		t.Errorf("who had it open lost it: %v", err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
}

func TestOpenSweepsWhatADeadWriterLeft(t *testing.T) {
	s := open(t)
	alive := begin(t, s, cube.NewSnapshotID())
	defer alive.Abort()
	dead := begin(t, s, cube.NewSnapshotID())
	dead.close() // as the kernel does at the end of a process
	if _, err := Open(s.dir); err != nil {
		t.Fatal(err)
	}
	if l := leftovers(t, s); len(l) != 1 || l[0] != alive.dir {
		t.Errorf("staging has %v; want only the living writer's %s", l, alive.dir)
	}
}

func TestKeptFilesHaveNoNameButReadBack(t *testing.T) {
	s := open(t)
	w := begin(t, s, cube.NewSnapshotID())
	data := fill(t, w, 2<<20)
	files, pages, err := w.Keep()
	if err != nil || pages != int64(len(data)) {
		t.Fatalf("got %d bytes, %v", pages, err)
	}
	got := make([]byte, len(data))
	if _, err := files[pagesIndex].ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("pages differ (%v)", err)
	}
	for _, f := range files {
		f.Close()
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
}

func TestARootfsIsNamedByItsContent(t *testing.T) {
	s := open(t)
	path := filepath.Join(t.TempDir(), "r")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4, "abc"
	for range 2 {
		got, err := s.PutRootfs(context.Background(), path)
		if err != nil || got != want {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	}
	f, err := s.OpenRootfs(want)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, _ := io.ReadAll(f); string(b) != "abc" {
		t.Errorf("got %q", b)
	}
	if _, err := s.OpenRootfs("../../etc/passwd"); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

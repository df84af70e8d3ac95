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

var background = context.Background()

func open(t *testing.T) *Store {
	t.Helper()
	return reopen(t, t.TempDir())
}

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reboot opens the store as the machine does after its next start.
func reboot(t *testing.T, s *Store) *Store {
	t.Helper()
	next := reopen(t, s.dir)
	next.boot = "after " + s.boot
	return next
}

func content(n int) []byte {
	data := make([]byte, n)
	rand.Read(data)
	return data
}

// write writes what an engine would; no disk writes none.
func write(w *Writer, pages, disk []byte) error {
	var errs []error
	for i, f := range append(w.Files, w.Disk) {
		_, err := f.Write([][]byte{[]byte("kernel"), []byte("meta"), pages, disk}[i])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func fill(t *testing.T, w *Writer, pages int) []byte {
	t.Helper()
	data := content(pages)
	if err := write(w, data, nil); err != nil {
		t.Fatal(err)
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
	im, err := w.Publish(background, cube.Image{Kind: cube.KindSnapshot, Engine: "e"}, false)
	if err != nil {
		t.Fatal(err)
	}
	return im, data
}

// publishAll has files of more than one region, and those of a disk.
func publishAll(t *testing.T, s *Store, durable bool) cube.Image {
	t.Helper()
	w := begin(t, s, cube.NewSnapshotID())
	for _, f := range append(w.Files, w.Disk) {
		if _, err := f.Write(content(2<<20 + 4096)); err != nil {
			t.Fatal(err)
		}
	}
	im, err := w.Publish(background, cube.Image{Kind: cube.KindPause, CPU: []string{"avx"}}, durable)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// use opens all files of an image.
func use(s *Store, id cube.ImageID) error {
	f, err := s.OpenImage(id)
	if err != nil {
		return err
	}
	f.Close()
	d, _, err := s.OpenDisk(id)
	if err != nil {
		return err
	}
	return d.Close()
}

// names reports whether err is a *cube.CorruptError that names the file.
func names(err error, file string) bool {
	var c *cube.CorruptError
	return errors.As(err, &c) && c.File == file && errors.Is(err, cube.ErrCorrupt)
}

// wantNothingStaged fails if something is left in staging.
func wantNothingStaged(t *testing.T, s *Store) {
	t.Helper()
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
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
	wantNothingStaged(t, s)
}

func TestAnAbortedImageLeavesNothing(t *testing.T) {
	s := open(t)
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	w.Abort()
	if _, err := s.Image(w.id); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	wantNothingStaged(t, s)
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
	if _, err := a.Publish(background, cube.Image{}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Publish(background, cube.Image{}, false); !errors.Is(err, cube.ErrExists) {
		t.Errorf("second publish: got %v, want ErrExists", err)
	}
}

func TestAHoleInWhatTheEngineWroteIsAFullDisk(t *testing.T) {
	s := open(t)
	middle := func(f *os.File) error { return syscall.Fallocate(int(f.Fd()), 3, 1<<20, 1<<20) }
	end := func(f *os.File) error { return f.Truncate(4 << 20) }
	for _, c := range []struct {
		file, name string
		spoil      func(f *os.File) error
	}{
		{"kernel", "hole in the middle", middle},
		{"kernel", "hole at the end", end},
		{"kernel", "empty", func(f *os.File) error { return f.Truncate(0) }},
		{"pages-meta", "hole in the middle", middle},
		{"pages-meta", "hole at the end", end},
		{"pages-meta", "empty", func(f *os.File) error { return f.Truncate(0) }},
		{"pages", "hole in the middle", middle},
		{"pages", "hole at the end", end},
		{"pages", "cut within a page", func(f *os.File) error { return f.Truncate(2<<20 + 100) }},
	} {
		w := begin(t, s, cube.NewSnapshotID())
		for i, f := range w.Files {
			if _, err := f.Write(content(3 << 20)); err != nil {
				t.Fatal(err)
			}
			if memoryNames[i] == c.file {
				if err := c.spoil(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := w.Publish(background, cube.Image{}, false); !errors.Is(err, cube.ErrNoSpace) {
			t.Errorf("%s, %s: got %v, want ErrNoSpace", c.file, c.name, err)
		}
		wantGone(t, s, w.id)
	}
}

// A tar of files has the holes that the files have.
func TestAHoleInADiskIsNone(t *testing.T) {
	s := open(t)
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	if err := w.Disk.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	im, err := w.Publish(background, cube.Image{}, false)
	if err != nil || im.FilesBytes != 1<<30 || im.Bytes > 1<<20 {
		t.Fatalf("got %+v, %v", im, err)
	}
	if err := s.Verify(background, im.ID); err != nil {
		t.Error(err)
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
	files, err := w.Keep()
	if err != nil || files.Image.PagesBytes != int64(len(data)) {
		t.Fatalf("got %+v, %v", files, err)
	}
	got := make([]byte, len(data))
	if _, err := files.Files[pagesIndex].ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("pages differ (%v)", err)
	}
	files.Close()
	wantNothingStaged(t, s)
}

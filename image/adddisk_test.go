package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

// disk2 is what addDisk adds.
var disk2 = bytes.Repeat([]byte("written to disk "), 100_000)

func addDisk(s *Store, id cube.ImageID) error {
	_, err := s.AddDisk(background, id, func(f *os.File) error {
		_, err := f.Write(disk2)
		return err
	})
	return err
}

// memoryOnly is a published image without files apart from its memory.
func memoryOnly(t *testing.T, s *Store, durable bool) cube.Image {
	t.Helper()
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 3<<20+4096)
	im, err := w.Publish(background, cube.Image{Kind: cube.KindPause}, durable)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// wantNamed fails if the directory of an image has other files than it names.
func wantNamed(t *testing.T, s *Store, id cube.ImageID) {
	t.Helper()
	d, err := s.directory(id)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.Dir(id))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(append(m.names(), manifestName, durableName, notesName), e.Name()) {
			t.Errorf("%s is there, and the image does not name it", e.Name())
		}
	}
}

func TestFilesAreAddedToAPublishedImageAndItsMemoryIsDropped(t *testing.T) {
	s := open(t)
	im := memoryOnly(t, s, true)
	before, err := s.OpenImage(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if err := addDisk(s, im.ID); err != nil {
		t.Fatal(err)
	}
	if err := addDisk(s, im.ID); !errors.Is(err, cube.ErrExists) {
		t.Errorf("a second time: got %v", err)
	}
	for _, s := range []*Store{s, reopen(t, s.dir)} {
		got, err := s.Image(im.ID)
		if err != nil || !got.Durable || got.FilesOnly || got.FilesBytes != int64(len(disk2)) || got.PagesBytes != im.PagesBytes || got.Bytes <= im.Bytes {
			t.Fatalf("got %+v, %v; it was %+v", got, err, im)
		}
		if err := errors.Join(use(s, im.ID), s.Verify(background, im.ID)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.DropMemory(im.ID)
	if err != nil || !got.FilesOnly || got.PagesBytes != 0 || got.Bytes > int64(len(disk2)) {
		t.Fatalf("got %+v, %v", got, err)
	}
	wantNamed(t, s, im.ID)
	f, again, err := s.OpenDisk(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || !bytes.Equal(b, disk2) || again.Durable != true {
		t.Errorf("got %d bytes of %+v, %v", len(b), again, err)
	}
	if _, err := s.OpenImage(im.ID); !errors.Is(err, cube.ErrIncompatible) {
		t.Errorf("its memory: got %v", err)
	}
	if fi, err := before.Files[pagesIndex].Stat(); err != nil || fi.Size() != im.PagesBytes {
		t.Errorf("whoever had its memory open has lost it: %v", err)
	}
}

func TestFilesThatWereAddedAreSummed(t *testing.T) {
	s := open(t)
	im := memoryOnly(t, s, true)
	if err := addDisk(s, im.ID); err != nil {
		t.Fatal(err)
	}
	rot(t, s, im.ID, diskName)
	if err := s.Verify(background, im.ID); !names(err, diskName) {
		t.Errorf("got %v, want that they are damaged", err)
	}
	if f, err := s.OpenImage(im.ID); err != nil {
		t.Errorf("its memory: %v", err)
	} else {
		f.Close()
	}
}

func TestWhatCannotBeAddedLeavesTheImageAsItWas(t *testing.T) {
	for point, do := range map[string]func(s *Store, id cube.ImageID) error{
		"image/add-disk/placed": addDisk,
		"image/add-disk/named":  addDisk,
		"":                      func(s *Store, id cube.ImageID) error { return addNothing(s, id) },
	} {
		s := open(t)
		im := memoryOnly(t, s, true)
		want := read(t, filepath.Join(s.Dir(im.ID), manifestName))
		if point != "" {
			arm(t, point)
		}
		if err := do(s, im.ID); !errors.Is(err, failpoint.ErrInjected) && !errors.Is(err, errNothing) {
			t.Fatalf("%s: got %v", point, err)
		}
		if got := read(t, filepath.Join(s.Dir(im.ID), manifestName)); !bytes.Equal(got, want) {
			t.Errorf("%s: the manifest is another", point)
		}
		wantNamed(t, s, im.ID)
		wantNothingStaged(t, s)
		if err := addDisk(s, im.ID); err != nil {
			t.Errorf("%s: the next time: %v", point, err)
		}
	}
	s := open(t)
	im := memoryOnly(t, s, false)
	if _, err := s.DropMemory(im.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("to drop the memory of an image that has nothing else: got %v", err)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := s.AddDisk(ctx, im.ID, func(f *os.File) error { _, err := f.Write(disk2); return err }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if err := s.Hide(im.ID); err != nil {
		t.Fatal(err)
	}
	if err := addDisk(s, im.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("to one that is hidden: got %v", err)
	}
}

var errNothing = errors.New("nothing came")

func addNothing(s *Store, id cube.ImageID) error {
	_, err := s.AddDisk(background, id, func(*os.File) error { return errNothing })
	return err
}

func TestADiskThatIsFullLeavesAnImageWithItsMemory(t *testing.T) {
	s := reopen(t, filepath.Join(tmpfs(t, "6m"), "s"))
	im := memoryOnly(t, s, true)
	_, err := s.AddDisk(background, im.ID, func(f *os.File) error {
		_, err := f.Write(bytes.Repeat(disk2, 4))
		return err
	})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	wantNothingStaged(t, s)
	wantNamed(t, s, im.ID)
	f, err := s.OpenImage(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestKilledWhileFilesAreAddedOrMemoryDroppedAnImageIsWhole(t *testing.T) {
	for _, c := range []struct {
		point, do           string
		hasMemory, hasFiles bool
	}{
		{"image/add-disk/placed", "add-disk", true, false},
		{"image/add-disk/named", "add-disk", true, true},
		{"image/drop-memory/unnamed", "drop-memory", false, true},
	} {
		s := open(t)
		im := memoryOnly(t, s, true)
		if !c.hasMemory {
			if err := addDisk(s, im.ID); err != nil {
				t.Fatal(err)
			}
		}
		kill(t, c.point, c.do, s.dir, string(im.ID))
		if err := s.Verify(background, im.ID); err != nil {
			t.Errorf("%s: %v", c.point, err)
		}
		next := reopen(t, s.dir)
		got, err := next.Image(im.ID)
		if err != nil || got.FilesOnly == c.hasMemory || got.FilesBytes > 0 != c.hasFiles || !got.Durable {
			t.Errorf("%s: got %+v, %v", c.point, got, err)
		}
		if err := next.Verify(background, im.ID); err != nil {
			t.Errorf("%s: %v", c.point, err)
		}
		wantNamed(t, next, im.ID)
		wantNothingStaged(t, next)
	}
}

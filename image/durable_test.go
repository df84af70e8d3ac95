package image

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	cube "cubesandbox"
)

// wantDurable fails if the image is, or is not.
func wantDurable(t *testing.T, s *Store, id cube.ImageID, want bool) {
	t.Helper()
	for what, s := range map[string]*Store{"this": s, "another process": reopen(t, s.dir)} {
		im, err := s.Image(id)
		if err != nil || im.Durable != want {
			t.Errorf("%s: durable: got %v, %v; want %v", what, im.Durable, err, want)
		}
	}
}

func TestAnImageIsPublishedOrDurable(t *testing.T) {
	s := open(t)
	for _, durable := range []bool{false, true} {
		im := publishAll(t, s, durable)
		if im.Durable != durable {
			t.Errorf("publish says %v, want %v", im.Durable, durable)
		}
		wantDurable(t, s, im.ID, durable)
		for range 2 {
			if err := s.Sync(background, im.ID); err != nil {
				t.Fatal(err)
			}
			wantDurable(t, s, im.ID, true)
		}
	}
}

func TestManyMayMakeOneImageDurable(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := s.Sync(background, im.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantDurable(t, s, im.ID, true)
	if len(s.turns) != 0 {
		t.Errorf("%d turns are left", len(s.turns))
	}
}

func TestASyncThatWaitsCanBeCancelled(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	done, err := s.turn(background, im.ID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	got := make(chan error)
	go func() { got <- s.Sync(ctx, im.ID) }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	done()
	wantDurable(t, s, im.ID, false)
}

func TestATornImageDoesNotBecomeDurable(t *testing.T) {
	for _, name := range files {
		s := open(t)
		im := publishAll(t, s, false)
		next := reboot(t, s)
		path := filepath.Join(s.Dir(im.ID), name)
		if name == manifestName {
			flip(t, path, 20)
		} else {
			rot(t, s, im.ID, name)
		}
		if err := next.Sync(background, im.ID); !names(err, name) {
			t.Errorf("%s: got %v, want a CorruptError that names it", name, err)
		}
		if exists(filepath.Join(s.Dir(im.ID), durableName)) {
			t.Errorf("%s: it is marked as durable", name)
		}
	}
	s := open(t)
	im := publishAll(t, s, false)
	if err := reboot(t, s).Sync(background, im.ID); err != nil {
		t.Errorf("a whole one: %v", err)
	}
	wantDurable(t, s, im.ID, true)
}

func TestAnImageOfFilesOnlyHasNoMemory(t *testing.T) {
	s := open(t)
	w := begin(t, s, cube.NewSnapshotID())
	tar := content(2<<20 + 512)
	if err := write(w, content(1<<20), tar); err != nil {
		t.Fatal(err)
	}
	if err := w.DropMemory(); err != nil {
		t.Fatal(err)
	}
	im, err := w.Publish(background, cube.Image{Kind: cube.KindPause}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !im.FilesOnly || im.PagesBytes != 0 || im.FilesBytes != int64(len(tar)) || im.Bytes != int64(len(tar)) {
		t.Errorf("got %+v", im)
	}
	if _, err := s.OpenImage(im.ID); !errors.Is(err, cube.ErrIncompatible) {
		t.Errorf("memory: got %v, want ErrIncompatible", err)
	}
	if err := s.Verify(background, im.ID); err != nil {
		t.Error(err)
	}
	if f, _, err := s.OpenDisk(im.ID); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	for _, name := range memoryNames {
		if exists(filepath.Join(s.Dir(im.ID), name)) {
			t.Errorf("%s is there", name)
		}
	}
}

func TestAnImageOfFilesWithoutThemIsNotPublished(t *testing.T) {
	s := open(t)
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	if err := w.DropMemory(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Publish(background, cube.Image{}, true); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	wantGone(t, s, w.id)
	wantNothingStaged(t, s)
}

func TestAnImageWithoutFilesOfItsOwnSaysSo(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	if _, _, err := s.OpenDisk(im.ID); im.FilesBytes != 0 || !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %d bytes and %v, want 0 and ErrNotFound", im.FilesBytes, err)
	}
	if exists(filepath.Join(s.Dir(im.ID), diskName)) {
		t.Error("the empty tar is there")
	}
}

func TestFilesCanBeUsedWhateverHasBecomeOfTheMemory(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	flip(t, filepath.Join(s.Dir(im.ID), "pages"), 1<<20)
	if _, err := s.OpenImage(im.ID); !names(err, "pages") {
		t.Fatalf("got %v, want a CorruptError that names pages", err)
	}
	f, got, err := s.OpenDisk(im.ID)
	if err != nil || got.ID != im.ID {
		t.Fatalf("got %v, %v", got, err)
	}
	f.Close()
}

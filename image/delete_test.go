package image

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	cube "cubesandbox"
)

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

// wantGone fails if anybody can find the image.
func wantGone(t *testing.T, s *Store, id cube.ImageID) {
	t.Helper()
	_, image := s.Image(id)
	_, memory := s.OpenImage(id)
	_, _, disk := s.OpenDisk(id)
	for what, err := range map[string]error{"image": image, "memory": memory, "disk": disk,
		"verify": s.Verify(background, id), "sync": s.Sync(background, id)} {
		if !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", what, err)
		}
	}
	all, err := s.Images()
	if len(all) != 0 || err != nil {
		t.Errorf("list: got %v, %v", all, err)
	}
}

func TestAHiddenImageIsFoundByNobodyAndKeepsWhatItNeeds(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	for range 2 { // it can be done again
		if err := s.Hide(im.ID); err != nil {
			t.Fatal(err)
		}
		for what, s := range map[string]*Store{"this": s, "another process": reopen(t, s.dir), "after a start": reboot(t, s)} {
			wantGone(t, s, im.ID)
			if got, err := s.Hidden(); err != nil || len(got) != 1 || got[0] != im.ID {
				t.Errorf("%s: got hidden %v, %v", what, got, err)
			}
		}
	}
	if n, err := s.Needed(); err != nil || len(n.Engines) != 1 {
		t.Errorf("needed: got %v, %v", n, err)
	}
	if got := allocated(s.Dir(im.ID)); got < im.Bytes {
		t.Errorf("its files have %d bytes, want %d", got, im.Bytes)
	}
	if err := s.Delete(im.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Hidden(); err != nil || len(got) != 0 {
		t.Errorf("deleted: got hidden %v, %v", got, err)
	}
	if exists(s.Dir(im.ID)) {
		t.Error("its directory is still there")
	}
	if err := s.Hide(im.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("hide what is gone: got %v, want ErrNotFound", err)
	}
}

func TestWhatIsDamagedCanBeHiddenAndDeleted(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"torn manifest":    func(path string) error { return os.Truncate(path, 0) },
		"missing manifest": os.Remove,
	} {
		s := open(t)
		im := publishAll(t, s, false)
		if err := spoil(filepath.Join(s.Dir(im.ID), manifestName)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Image(im.ID); !names(err, manifestName) || got.ID != im.ID || got.Durable {
			t.Fatalf("%s: got %+v, %v; want a CorruptError that names it, not durable", what, got, err)
		}
		if _, err := s.Needed(); !errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("%s: needed: got %v, want ErrCorrupt", what, err)
		}
		if err := s.Hide(im.ID); err != nil {
			t.Fatal(err)
		}
		wantGone(t, s, im.ID)
		if _, err := s.Needed(); err != nil {
			t.Errorf("%s, hidden: needed: %v", what, err)
		}
		if err := s.DeleteHidden(im.ID); err != nil || exists(s.Dir(im.ID)) {
			t.Errorf("%s: delete: %v", what, err)
		}
	}
}

func TestTheIDOfAHiddenImageCanBeGivenAgain(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	if err := s.Hide(im.ID); err != nil {
		t.Fatal(err)
	}
	w := begin(t, s, im.ID)
	data := fill(t, w, 8192)
	if _, err := w.Publish(background, cube.Image{Kind: cube.KindTemplate}, true); err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenImage(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f.Files[pagesIndex]); err != nil || !bytes.Equal(got, data) {
		t.Errorf("it has not the pages that were saved last (%v)", err)
	}
	if got, err := s.Hidden(); err != nil || len(got) != 0 {
		t.Errorf("got hidden %v, %v", got, err)
	}
	if err := s.DeleteHidden(im.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("who remembers the hidden one: got %v, want ErrConflict", err)
	}
	if _, err := s.Image(im.ID); err != nil {
		t.Error(err)
	}
	wantNothingStaged(t, s)
}

func TestRemovalInPlaceIsFinishedByTheNextOpen(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	d, err := s.hold(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	// As far as a process gets that is ended after its first two steps.
	if err := errors.Join(d.Rename(manifestName, deletedName), d.Remove("kernel"), d.Close()); err != nil {
		t.Fatal(err)
	}
	wantGone(t, s, im.ID)
	if _, err := s.Needed(); err != nil {
		t.Error(err)
	}
	g, err := s.Collect(background, true)
	if err != nil || len(g) != 1 || g[0].Name != string(im.ID) || g[0].Kind != cube.GarbageImage {
		t.Errorf("got garbage %v, %v", g, err)
	}
	reopen(t, s.dir)
	if exists(s.Dir(im.ID)) {
		t.Error("it is still there")
	}
}

func TestADiskThatTakesNoOtherNameIsDeletedFromInPlace(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	other := publishAll(t, s, false)
	d, err := s.hold(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.removeInPlace(); err != nil {
		t.Fatal(err)
	}
	if exists(s.Dir(im.ID)) {
		t.Error("it is still there")
	}
	if err := use(s, other.ID); err != nil {
		t.Errorf("another image: %v", err)
	}
}

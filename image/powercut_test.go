package image

import (
	"errors"
	"io"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/internal/powercut"
)

// disk is one whose power can be cut.
type disk struct{ powercut.Disk }

func newDisk(t *testing.T) disk {
	t.Helper()
	return disk{powercut.New(t, 128<<20)}
}

// cut is the store as it is found after the power has gone now.
func (d disk) cut(t *testing.T) *Store {
	t.Helper()
	after, remove := d.Cut(t)
	t.Cleanup(remove)
	s := reopen(t, filepath.Join(after.Dir, "s"))
	s.boot = "after the power cut"
	return s
}

// wantWhole fails if the image is not there, durable, and right in every byte.
func wantWhole(t *testing.T, s *Store, im cube.Image) {
	t.Helper()
	if err := errors.Join(use(s, im.ID), s.Verify(background, im.ID)); err != nil {
		t.Error(err)
	}
	if got, err := s.Image(im.ID); err != nil || !got.Durable || got.Bytes != im.Bytes {
		t.Errorf("got %+v, %v; want %+v", got, err, im)
	}
}

func TestWhatIsDurableSurvivesAPowerCut(t *testing.T) {
	d := newDisk(t)
	s := reopen(t, filepath.Join(d.Dir, "s"))
	digest := putRootfs(t, s, content(1<<20))
	published := publishAll(t, s, true)
	torn := publishAll(t, s, false)
	synced, hidden := publishAll(t, s, false), publishAll(t, s, false)
	for _, im := range []cube.Image{synced, hidden} {
		if err := s.Sync(background, im.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Hide(hidden.ID); err != nil {
		t.Fatal(err)
	}
	lost := publishAll(t, s, false)
	after := d.cut(t)

	wantWhole(t, after, published)
	wantWhole(t, after, synced)
	if got, err := after.Hidden(); err != nil || len(got) != 1 || got[0] != hidden.ID {
		t.Errorf("got hidden %v, %v; want %s", got, err, hidden.ID)
	}
	if f, err := after.OpenRootfs(digest); err != nil {
		t.Error(err)
	} else if b, err := io.ReadAll(f); err != nil || len(b) != 1<<20 || f.Close() != nil {
		t.Errorf("the file system has %d bytes, %v", len(b), err)
	}
	// Unless these are lost, nothing was cut.
	if _, err := after.Image(lost.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("what was never synced: got %v, want ErrNotFound; the test shows nothing", err)
	}
	for what, err := range map[string]error{"use": use(after, torn.ID), "sync": after.Sync(background, torn.ID)} {
		if !errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("%s of what was not durable yet: got %v, want ErrCorrupt", what, err)
		}
	}
	age(t, after.Dir(torn.ID))
	collect(t, after, map[string]cube.GarbageKind{string(torn.ID): cube.GarbageImage})
}

func TestWhatReturnsIsDurableAtOnce(t *testing.T) {
	d := newDisk(t)
	s := reopen(t, filepath.Join(d.Dir, "s"))
	published := publishAll(t, s, true)
	wantWhole(t, d.cut(t), published)

	synced := publishAll(t, s, false)
	if err := s.Sync(background, synced.ID); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, d.cut(t), synced)

	if err := s.Hide(synced.ID); err != nil {
		t.Fatal(err)
	}
	if got := state(t, d.cut(t), synced.ID); got != "hidden" {
		t.Errorf("hide: got %s, want hidden", got)
	}

	for _, what := range []string{"new", "there already, and not durable"} {
		digest := putRootfs(t, s, []byte("root"))
		if f, err := d.cut(t).OpenRootfs(digest); err != nil {
			t.Errorf("file system, %s: %v", what, err)
		} else {
			f.Close()
		}
		// As somebody leaves one who is ended before it is durable.
		putBack(t, s.rootfsPath(digest), []byte("root"))
	}
}

func TestKilledAtAnyPlaceBeforeAPowerCutNothingIsHalf(t *testing.T) {
	d := newDisk(t)
	s := reopen(t, filepath.Join(d.Dir, "s"))
	kept := publishAll(t, s, true)
	for _, c := range []struct {
		point, do string
		may       []string // be
	}{
		{"image/publish/verified", "durable", []string{"absent"}},
		{"image/publish/synced", "durable", []string{"absent"}},
		{"image/publish/renamed", "durable", []string{"absent", "durable"}},
		{"image/publish/renamed", "publish", []string{"absent", "torn"}},
		{"image/sync/synced", "sync", []string{"published"}},
		{"image/hide/hidden", "hide", []string{"hidden"}},
		{"image/delete/renamed", "delete", []string{"absent", "durable"}},
	} {
		t.Run(c.do+" "+c.point, func(t *testing.T) {
			id := cube.NewSnapshotID()
			if c.do != "durable" && c.do != "publish" {
				id = publishAll(t, s, c.do != "sync").ID
			}
			kill(t, c.point, c.do, s.dir, string(id))
			after := d.cut(t)
			wantWhole(t, after, kept)
			got := state(t, after, id)
			for _, may := range c.may {
				if got == may {
					return
				}
			}
			t.Errorf("got %s, want one of %v", got, c.may)
		})
	}
}

// state says what an image is after a power cut: whole in one way, torn, or not there.
func state(t *testing.T, s *Store, id cube.ImageID) string {
	t.Helper()
	hidden, err := s.Hidden()
	if err != nil {
		t.Error(err)
	}
	im, err := s.Image(id)
	if err == nil {
		err = s.Verify(background, id)
	}
	switch {
	case errors.Is(err, cube.ErrNotFound) && len(hidden) == 1 && hidden[0] == id:
		return "hidden"
	case errors.Is(err, cube.ErrNotFound):
		return "absent"
	case errors.Is(err, cube.ErrCorrupt) && !exists(filepath.Join(s.Dir(id), durableName)):
		return "torn"
	case err != nil:
		t.Errorf("damaged: %v", err)
	case im.Durable:
		return "durable"
	}
	return "published"
}

func TestADiskThatFailedIsNotBelievedAfterwards(t *testing.T) {
	small := tmpfs(t, "64m")
	d := powercut.In(t, small, 128<<20)
	s := reopen(t, filepath.Join(d.Dir, "s"))
	im := publishAll(t, s, false)
	makeRoom := leave(t, small, 0) // the device cannot keep what it is given
	if err := s.Sync(background, im.ID); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v, want EIO", err)
	}
	makeRoom()
	if err := s.Sync(background, im.ID); !errors.Is(err, syscall.EIO) {
		t.Errorf("the device works again, what was to be written is gone: got %v, want EIO", err)
	}
	if exists(filepath.Join(s.Dir(im.ID), durableName)) {
		t.Error("it is marked as durable")
	}
}

func TestWhatADiskFailedToWriteIsReadBeforeItIsUsed(t *testing.T) {
	small := tmpfs(t, "64m")
	d := powercut.In(t, small, 128<<20)
	s := reopen(t, filepath.Join(d.Dir, "s"))
	im := publishAll(t, s, false)
	makeRoom := leave(t, small, 0)
	if err := s.Sync(background, im.ID); err == nil {
		t.Fatal("the sync has not failed; the test shows nothing")
	}
	makeRoom()
	// What is in memory is right; what is on disk may be anything.
	f, err := s.OpenImage(im.ID)
	if errors.Is(err, cube.ErrCorrupt) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir, err := s.directory(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	m, err := dir.manifest(manifestName)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range f.Files {
		f.Sync()
		unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // as the system does that needs memory
		if detail, err := differs(background, f, m.Files[i], 1); err != nil || detail != "" {
			t.Errorf("%s was handed out, and is wrong: %s, %v", m.Files[i].Name, detail, err)
		}
	}
}

func TestThatASyncHasFailedIsKnownToLaterProcessesOfThisLifeOfTheMachine(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	dir, err := s.directory(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s.failSync(dir, syscall.EIO)
	later := reopen(t, s.dir)
	rot(t, later, im.ID, "pages")
	for what, s := range map[string]*Store{"this": s, "a later": later} {
		if err := s.Sync(background, im.ID); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s process: sync: got %v, want EIO", what, err)
		}
		if _, err := s.OpenImage(im.ID); !names(err, "pages") {
			t.Errorf("%s process: got %v, want a CorruptError that names pages", what, err)
		}
	}
	if err := s.Delete(im.ID); err != nil || len(s.lost) != 0 {
		t.Errorf("%v; after it is deleted %d failures are remembered", err, len(s.lost))
	}
}

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	cube "cubesandbox"
)

// age makes a file one that was put two hours ago.
func age(t *testing.T, path string) {
	t.Helper()
	then := time.Now().Add(-2 * collectAge)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// collect wants a dry run and then a real one to name the same, and a third nothing.
func collect(t *testing.T, s *Store, want map[string]cube.GarbageKind) {
	t.Helper()
	for _, dry := range []bool{true, false} {
		got, err := s.Collect(background, dry)
		if err != nil {
			t.Fatalf("dry %v: %v", dry, err)
		}
		if len(got) != len(want) {
			t.Errorf("dry %v: got %v, want %v", dry, got, want)
		}
		for _, g := range got {
			if want[g.Name] != g.Kind || g.Bytes == 0 || g.Why == "" {
				t.Errorf("dry %v: got %+v, want %v", dry, g, want)
			}
		}
	}
	if got, err := s.Collect(background, false); err != nil || len(got) != 0 {
		t.Errorf("afterwards: got %v, %v", got, err)
	}
}

func TestAFileSystemIsGarbageWhenNothingNamesOrHasIt(t *testing.T) {
	s := open(t)
	inUse, named, hidden, young, old := putRootfs(t, s, content(1<<20)), putRootfs(t, s, []byte("named")),
		putRootfs(t, s, []byte("hidden")), putRootfs(t, s, []byte("young")), putRootfs(t, s, []byte("old"))
	var images []cube.Image
	for _, im := range []cube.Image{{Rootfs: named}, {Agent: hidden}} {
		w := begin(t, s, cube.NewSnapshotID())
		fill(t, w, 4096)
		im, err := w.Publish(background, im, false)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, im)
	}
	if err := s.Hide(images[1].ID); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{inUse, named, hidden, old} {
		age(t, s.rootfsNotePath(digest))
	}
	release := holding(t, "use", s.dir, inUse)
	collect(t, s, map[string]cube.GarbageKind{old: cube.GarbageRootfs})
	release()
	collect(t, s, map[string]cube.GarbageKind{inUse: cube.GarbageRootfs})
	for _, im := range images {
		if err := s.Delete(im.ID); err != nil {
			t.Fatal(err)
		}
	}
	collect(t, s, map[string]cube.GarbageKind{named: cube.GarbageRootfs, hidden: cube.GarbageRootfs})
	left, err := filepath.Glob(filepath.Join(s.rootfsDir(), "*"))
	if err != nil || len(left) != 2 { // young and its note
		t.Errorf("left: %v, %v; want %s", left, err, young)
	}
}

func TestAFileSystemThatIsNamedMeanwhileStays(t *testing.T) {
	s := open(t)
	digest := putRootfs(t, s, []byte("abc"))
	age(t, s.rootfsNotePath(digest))
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	if _, err := w.Publish(background, cube.Image{Rootfs: digest}, false); err != nil {
		t.Fatal(err)
	}
	// As of one that nothing named when the collection began.
	c := &collection{s: s}
	if err := c.fileSystem(digest, s.rootfsPath(digest)); err != nil || len(c.found) != 0 || !exists(s.rootfsPath(digest)) {
		t.Errorf("got %v, %v; want it to stay", c.found, err)
	}
}

func TestWhatIsPutAgainIsYoungAgain(t *testing.T) {
	s := open(t)
	digest := putRootfs(t, s, []byte("abc"))
	age(t, s.rootfsNotePath(digest))
	putRootfs(t, s, []byte("abc"))
	collect(t, s, nil)
}

func TestNoFileSystemIsFreedWhileAManifestCannotBeRead(t *testing.T) {
	s := open(t)
	digest := putRootfs(t, s, []byte("abc"))
	age(t, s.rootfsNotePath(digest))
	im := publishAll(t, s, true)
	path := filepath.Join(s.Dir(im.ID), manifestName)
	was := read(t, path)
	flip(t, path, 3)
	if got, err := s.Image(im.ID); !names(err, manifestName) || !got.Durable {
		t.Errorf("got %+v, %v; want a CorruptError of what is durable", got, err)
	}
	if got, err := s.Collect(background, false); !names(err, manifestName) || len(got) != 0 {
		t.Errorf("got %v, %v; want a CorruptError that names the manifest", got, err)
	}
	putBack(t, path, was)
	collect(t, s, map[string]cube.GarbageKind{digest: cube.GarbageRootfs})
}

func TestWhatAPowerCutHasTornIsGarbageOnlyIfItWasNeverDurable(t *testing.T) {
	s := open(t)
	torn, durable, young := publishAll(t, s, false), publishAll(t, s, true), publishAll(t, s, false)
	for _, im := range []cube.Image{torn, durable, young} {
		if err := os.Truncate(filepath.Join(s.Dir(im.ID), manifestName), 0); err != nil {
			t.Fatal(err)
		}
	}
	age(t, s.Dir(torn.ID))
	age(t, s.Dir(durable.ID))
	for _, dry := range []bool{true, false} {
		got, err := s.Collect(background, dry)
		if len(got) != 1 || got[0].Name != string(torn.ID) || !names(err, manifestName) {
			t.Errorf("dry %v: got %v, %v", dry, got, err)
		}
	}
	if exists(s.Dir(torn.ID)) || !exists(s.Dir(durable.ID)) || !exists(s.Dir(young.ID)) {
		t.Error("not the torn one alone was freed")
	}
}

func TestWhatAPowerCutHasTornIsGarbageAtOnceForWhoComesLater(t *testing.T) {
	s := open(t)
	torn, durable := publishAll(t, s, false), publishAll(t, s, true)
	for _, im := range []cube.Image{torn, durable} {
		if err := os.Truncate(filepath.Join(s.Dir(im.ID), manifestName), 0); err != nil {
			t.Fatal(err)
		}
		// Less than an hour ago.
		then := time.Now().Add(-time.Minute)
		if err := os.Chtimes(s.Dir(im.ID), then, then); err != nil {
			t.Fatal(err)
		}
	}
	s.opened = time.Now().Add(-2 * time.Minute) // it may be by somebody who is at work
	if got, err := s.Collect(background, true); len(got) != 0 || !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("got %v, %v; want nothing: the hour of grace", got, err)
	}
	got, err := reopen(t, s.dir).Collect(background, false)
	if len(got) != 1 || got[0].Name != string(torn.ID) || !names(err, manifestName) || !exists(s.Dir(durable.ID)) {
		t.Errorf("got %v, %v; want the one that was not durable", got, err)
	}
}

func TestStagingIsGarbageWhenNobodyHoldsIt(t *testing.T) {
	s := open(t)
	release := holding(t, "write", s.dir)
	mine := begin(t, s, cube.NewSnapshotID())
	dead := begin(t, s, cube.NewSnapshotID())
	dead.close() // as the kernel does at the end of a process
	trash := filepath.Join(s.stagingDir(), trashPrefix+"x")
	if err := os.Mkdir(trash, 0o700); err != nil {
		t.Fatal(err)
	}
	stray := filepath.Join(s.rootfsDir(), "half")
	putBack(t, stray, []byte("x"))
	collect(t, s, map[string]cube.GarbageKind{filepath.Base(dead.dir): cube.GarbageStaging, filepath.Base(trash): cube.GarbageImage})
	age(t, stray)
	collect(t, s, map[string]cube.GarbageKind{"half": cube.GarbageStaging})
	if got := leftovers(t, s); len(got) != 2 {
		t.Errorf("staging has %v, want what two processes write", got)
	}
	fill(t, mine, 4096)
	if im, err := mine.Publish(background, cube.Image{}, false); err != nil {
		t.Error(err)
	} else if err := s.Verify(background, im.ID); err != nil {
		t.Error(err)
	}
	release()
	wantNothingStaged(t, s)
}

package image

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/powercut"
)

func TestPagesStayAsLongAsAnImageHasMemoryInThem(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	// The first has been written over but for one segment, and all name it.
	for _, l := range c[:links-1] {
		if err := s.Delete(l.im.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Image(l.im.ID); !errors.Is(err, cube.ErrNotFound) || exists(s.Dir(l.im.ID)) {
			t.Errorf("what was deleted: got %v", err)
		}
	}
	last := c[links-1]
	wantBases(t, s, c[:links-1]...)
	collect(t, s, nil)
	for _, s := range []*Store{s, reopen(t, s.dir), reboot(t, s)} {
		wantMemory(t, s, last)
		if err := s.Verify(background, last.im.ID); err != nil {
			t.Error(err)
		}
	}
	if err := s.Delete(last.im.ID); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s)
	collect(t, s, nil)
	wantNothingStaged(t, s)
}

func TestAHiddenImageKeepsWhatItHasMemoryIn(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	if err := errors.Join(s.Hide(c[2].im.ID), s.Hide(c[1].im.ID), s.Delete(c[0].im.ID), s.Delete(c[4].im.ID), s.Delete(c[3].im.ID)); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s, c[0])
	// One that is hidden, and in which another has memory.
	if err := s.DeleteHidden(c[1].im.ID); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s, c[0], c[1])
	if err := s.DeleteHidden(c[2].im.ID); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s)
}

func TestPagesStayAsLongAsSomebodyHasThemOpen(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	release := holding(t, "open", s.dir, string(c[2].im.ID)) // as a sentry does
	for _, l := range c {
		if err := s.Delete(l.im.ID); err != nil {
			t.Fatal(err)
		}
	}
	wantBases(t, s, c[:3]...)
	collect(t, s, nil)
	// What is saved of a sandbox goes on to need them.
	w, err := s.Begin(cube.NewSnapshotID(), 0, c[0].im.Base, c[1].im.Base, c[2].im.Base)
	if err != nil {
		t.Fatal(err)
	}
	release()
	collect(t, s, nil)
	child, err := c[2].save(w, false, 2)
	if err != nil {
		t.Fatal(err)
	}
	wantMemory(t, s, child)
	// The third is open no more, and all that the child had in it was written over.
	collect(t, s, map[string]cube.GarbageKind{string(c[2].im.Base): cube.GarbageImage})
	wantBases(t, s, c[0], c[1])
}

func TestWhatASandboxMayHaveMemoryInMustBeThereBeforeItIsSaved(t *testing.T) {
	s := open(t)
	gone := cube.NewBaseID(cube.NewSnapshotID())
	if _, err := s.Begin(cube.NewSnapshotID(), 0, gone); !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), string(gone)) {
		t.Errorf("got %v, want an error that names it", err)
	}
	wantNothingStaged(t, s)
}

// A template that is built again has the id that it had.
func TestAnIDThatIsGivenAgainMeansNoOtherPagesToWhoHadMemoryInThem(t *testing.T) {
	s := open(t)
	id := cube.TemplateIDFromDigest([32]byte{7})
	build := func() link {
		l := link{memory: make([]byte, links*segment), at: make([]lies, links)}
		w := begin(t, s, id)
		l, err := l.save(w, false, 0, 1, 2, 3, 4)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	was := build()
	child, err := next(s, was, false, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Hide(id); err != nil {
		t.Fatal(err)
	}
	is := build()
	if is.im.Base == was.im.Base {
		t.Fatalf("both are %s", is.im.Base)
	}
	wantMemory(t, s, child)
	wantMemory(t, s, is)
	wantBases(t, s, was)
	if err := s.Delete(child.im.ID); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s)
	wantMemory(t, s, is)
}

func TestNothingIsFreedWhileAManifestThatMayNameItCannotBeRead(t *testing.T) {
	s := open(t)
	c := chain(t, s, true)
	plain := publishAll(t, s, true) // has no table, and so names none
	flip(t, filepath.Join(s.Dir(plain.ID), manifestName), 3)
	path := filepath.Join(s.Dir(c[4].im.ID), manifestName)
	was := read(t, path)
	flip(t, path, 3)
	for _, l := range c[:4] {
		if err := s.Delete(l.im.ID); err != nil {
			t.Fatal(err)
		}
	}
	wantBases(t, s, c[:4]...)
	putBack(t, path, was)
	wantMemory(t, s, c[4])
	if err := s.Delete(c[4].im.ID); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s)
}

func TestADamagedOrMissingBaseIsNamedBeforeAnythingIsRestored(t *testing.T) {
	s := open(t)
	c := chain(t, s, true)
	child := c[links-1]
	for i, l := range c[:links-1] {
		if i%2 == 0 { // deleted or not
			if err := s.Delete(l.im.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantNamed := func(what string, l link) {
		t.Helper()
		for _, s := range []*Store{s, reopen(t, s.dir), reboot(t, s)} {
			_, use := s.OpenImage(child.im.ID)
			for how, err := range map[string]error{"use": use, "verify": s.Verify(background, child.im.ID)} {
				if !names(err, "base "+string(l.im.Base)) || !strings.Contains(err.Error(), string(child.im.ID)) {
					t.Errorf("%s, %s: got %v, want a CorruptError of %s that names %s", what, how, err, child.im.ID, l.im.Base)
				}
			}
		}
	}
	for i, l := range c[:links-1] {
		dir := s.Dir(l.im.ID)
		if i%2 == 0 {
			dir = s.baseDir(l.im.Base)
		}
		path := filepath.Join(dir, pagesName)
		was := read(t, path)
		for from := 0; from < len(was); from += region {
			flip(t, path, int64(from))
			wantNamed("flipped", l)
			putBack(t, path, was)
		}
		for what, spoil := range map[string]func() error{
			"cut":  func() error { return os.Truncate(path, int64(len(was)-4096)) },
			"gone": func() error { return os.Remove(path) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			wantNamed(what, l)
			putBack(t, path, was)
		}
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		wantNamed("its directory is gone", l)
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		wantMemory(t, s, child)
	}
	if err := s.Verify(background, child.im.ID); err != nil {
		t.Error(err)
	}
}

func TestTooFewDescriptorsAreNoDamageOfABase(t *testing.T) {
	s := open(t)
	c := chain(t, s, true)
	id := c[links-1].im.ID
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	refused := 0
	for n := uint64(3); n < 64; n++ {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		f, err := s.OpenImage(id)
		if err == nil {
			f.Close()
			continue
		}
		refused++
		if !errors.Is(err, cube.ErrUnavailable) || errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("%d descriptors: got %v, want ErrUnavailable", n, err)
		}
	}
	if refused == 0 {
		t.Error("there were always enough; the test shows nothing")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	wantMemory(t, s, c[links-1])
}

func TestClonesHaveMemoryInPagesThatNoImageHas(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	keep := func() (link, *Files) {
		w := begin(t, s, cube.NewSnapshotID())
		l := link{memory: bytes.Clone(c[2].memory), at: slices.Clone(c[2].at)}
		pages := l.write(w, []int{4})
		if err := errors.Join(write(w, pages, nil), rewriteTable(w.Sources, l.table(w.Base()))); err != nil {
			t.Fatal(err)
		}
		f, err := w.KeepBase()
		if err != nil {
			t.Fatal(err)
		}
		l.im = f.Image
		return l, f
	}
	source, f := keep()
	if len(f.Bases) != 3 || f.Sources == nil || f.Image.PagesBytes != segment {
		t.Fatalf("got %+v", f)
	}
	wantBases(t, s, source)
	if err := reopen(t, s.dir).Verify(background, c[4].im.ID); err != nil { // an Open sweeps nothing of it
		t.Error(err)
	}
	collect(t, s, nil)
	clone, err := next(s, source, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	wantBases(t, s, source)
	for _, s := range []*Store{s, reboot(t, s)} {
		wantMemory(t, s, clone)
		if err := s.Verify(background, clone.im.ID); err != nil {
			t.Error(err)
		}
	}
	if err := s.Delete(clone.im.ID); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s)

	// Nobody has saved anything that needs them.
	source, f = keep()
	wantBases(t, s, source)
	f.Close()
	wantBases(t, s)

	// Whoever was at work is ended.
	source, f = keep()
	f.closed = nil // as the kernel closes
	f.Close()
	wantBases(t, s, source)
	reopen(t, s.dir)
	wantBases(t, s)
	wantNothingStaged(t, s)
}

func TestWhatOthersHaveMemoryInKeepsIt(t *testing.T) {
	s := open(t)
	c := chain(t, s, true)
	if _, err := s.DropMemory(c[1].im.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	im, err := s.DropMemory(c[4].im.ID)
	if err != nil || len(im.Bases) > 0 || im.SharedBytes > 0 || im.Base != "" {
		t.Fatalf("got %+v, %v", im, err)
	}
	wantNamed(t, s, im.ID)
	if err := errors.Join(s.Verify(background, im.ID), s.Delete(c[3].im.ID)); err != nil {
		t.Error(err)
	}
	wantBases(t, s) // the last had memory in it, and no more
	wantMemory(t, s, c[2])
}

func TestWhereNoNameFindsRoomWhatOthersNeedIsHidden(t *testing.T) {
	dir := powercut.In(t, t.TempDir(), 32<<20, "-m", "0", "-b", "1024").Dir
	s := reopen(t, filepath.Join(dir, "s"))
	c := chain(t, s, true)
	cram(t, dir, s.basesDir())
	for _, l := range c[:2] {
		if err := s.Delete(l.im.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Image(l.im.ID); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}
	if got, err := s.Hidden(); err != nil || len(got) != 2 {
		t.Errorf("got hidden %v, %v; want both", got, err)
	}
	wantMemory(t, s, c[links-1])
	if err := s.DeleteHidden(c[0].im.ID); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace: it is needed, and must not be there", err)
	}
	wantMemory(t, s, c[links-1])
}

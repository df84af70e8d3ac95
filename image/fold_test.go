package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
)

func fold(t *testing.T, s *Store) cube.Folded {
	t.Helper()
	f, err := s.Fold(background, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func deleteLinks(t *testing.T, s *Store, links ...link) {
	t.Helper()
	for _, l := range links {
		if err := s.Delete(l.im.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// basesOf are those of an image as it is now.
func basesOf(t *testing.T, s *Store, l link) []cube.BaseID {
	t.Helper()
	im, err := s.Image(l.im.ID)
	if err != nil {
		t.Fatal(err)
	}
	return im.Bases
}

func TestWhatIsMostlyDeadIsCopiedTogetherAndFreed(t *testing.T) {
	s := open(t)
	c := chain(t, s, true)
	if got := fold(t, s); got != (cube.Folded{}) {
		t.Errorf("nothing was deleted: got %+v", got)
	}
	// Two images have two of five segments of the first.
	deleteLinks(t, s, c[:3]...)
	before, err := s.Image(c[4].im.ID)
	if err != nil {
		t.Fatal(err)
	}
	got := fold(t, s)
	if got.Images != 2 || got.Copied != 2*segment || got.Freed < links*segment {
		t.Errorf("got %+v, want 2 images, %d bytes copied and %d freed", got, 2*segment, links*segment)
	}
	if exists(s.baseDir(c[0].im.Base)) {
		t.Error("the pages of the first are there")
	}
	for _, s := range []*Store{s, reopen(t, s.dir), reboot(t, s)} {
		for _, l := range c[3:] {
			wantMemory(t, s, l)
			if err := s.Verify(background, l.im.ID); err != nil {
				t.Error(err)
			}
			wantNamed(t, s, l.im.ID)
		}
	}
	after, err := s.Image(c[4].im.ID)
	if err != nil || after.SharedBytes != before.SharedBytes || len(after.Bases) != len(before.Bases) || after.Base != before.Base || !after.Durable {
		t.Errorf("got %+v, %v; it was %+v", after, err, before)
	}
	if got := fold(t, s); got != (cube.Folded{}) {
		t.Errorf("again: got %+v", got)
	}
	collect(t, s, nil)
	wantNothingStaged(t, s)
	// What was copied together may be so again.
	deleteLinks(t, s, c[4])
	deleteLinks(t, s, c[3])
	wantBases(t, s)
}

func TestWhatHasManyBasesGetsFewer(t *testing.T) {
	s := open(t)
	memory := make([]byte, links*segment)
	table := pagetable.Table{Files: []pagetable.File{{Key: "main"}}}
	var bases []link
	for i := range deep + 1 {
		l, err := first(s, false)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, l)
		// The later ones have more.
		e := pagetable.Entry{Start: uint64(i) * 50 * pagetable.PageSize, Name: uint32(i + 1), Offset: pagetable.PageSize}
		e.End = e.Start + uint64(i+1)*pagetable.PageSize
		copy(memory[e.Start:e.End], l.memory[e.Offset:])
		table.Names = append(table.Names, string(l.im.Base))
		table.Files[0].Entries = append(table.Files[0].Entries, e)
	}
	var same []link
	for range 2 {
		w := begin(t, s, cube.NewSnapshotID())
		if err := errors.Join(write(w, content(4096), nil), pagetable.Write(w.Sources, table)); err != nil {
			t.Fatal(err)
		}
		im, err := w.Publish(background, cube.Image{}, false)
		if err != nil {
			t.Fatal(err)
		}
		same = append(same, link{im: im, memory: memory})
	}
	deleteLinks(t, s, bases[1])
	got := fold(t, s)
	// Of the deleted one there are two pages: they are copied before, and then again.
	if want := (int64(deep+1-shallow)*(deep+2-shallow)/2 + 2) * pagetable.PageSize; got.Images != 2 || got.Copied != want || got.Freed == 0 {
		t.Errorf("got %+v, want 2 images and %d bytes copied, once for both", got, want)
	}
	for _, l := range same {
		wantMemory(t, s, l)
		if n := len(basesOf(t, s, l)); n != shallow+1 {
			t.Errorf("it has %d bases, want %d", n, shallow+1)
		}
	}
	if a, b := basesOf(t, s, same[0]), basesOf(t, s, same[1]); !slices.Equal(a, b) {
		t.Errorf("what was copied for one is not used by the other: %v, %v", a, b)
	}
}

func TestWhatSomebodyHasOpenIsNotCopied(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	release := holding(t, "open", s.dir, string(c[4].im.ID))
	deleteLinks(t, s, c[:4]...)
	if got := fold(t, s); got != (cube.Folded{}) {
		t.Errorf("got %+v, want nothing: it could not be freed", got)
	}
	release()
	if got := fold(t, s); got.Images != 1 {
		t.Errorf("got %+v, want one image", got)
	}
	wantMemory(t, s, c[4])
}

func TestNoImageGetsToSeePagesThatItHadNotBefore(t *testing.T) {
	s := open(t)
	template, err := first(s, false)
	if err != nil {
		t.Fatal(err)
	}
	// Two lines of descent from one template; in each a deleted image is mostly dead.
	var lines [2][]link
	for i := range lines {
		a, err := next(s, template, false, 0, 1, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		b, err := next(s, a, false, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = []link{a, b}
	}
	deleteLinks(t, s, lines[0][0], lines[1][0], template)
	if got := fold(t, s); got.Images < 2 {
		t.Fatalf("got %+v", got)
	}
	for i, l := range lines {
		wantMemory(t, s, l[1])
		f, err := s.OpenImage(l[1].im.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range f.Bases {
			pages := read(t, b.Pages.Name())
			other := lines[1-i]
			for at := 0; at < len(pages); at += pagetable.PageSize {
				if page := pages[at : at+pagetable.PageSize]; contains(other[0].memory[:4*segment], page) {
					t.Fatalf("image %s is given a page of %s by base %s", l[1].im.ID, other[0].im.ID, b.ID)
				}
			}
		}
		f.Close()
	}
}

// contains reports whether memory has a page.
func contains(memory, page []byte) bool {
	for at := 0; at < len(memory); at += pagetable.PageSize {
		if slices.Equal(memory[at:at+pagetable.PageSize], page) {
			return true
		}
	}
	return false
}

func TestDamageIsNotCopied(t *testing.T) {
	s := open(t)
	c := chain(t, s, true)
	deleteLinks(t, s, c[:4]...)
	path := filepath.Join(s.baseDir(c[0].im.Base), pagesName)
	was := read(t, path)
	was[10] ^= 1
	putBack(t, path, was)
	if got := fold(t, s); got != (cube.Folded{}) {
		t.Errorf("got %+v, want nothing", got)
	}
	if _, err := s.OpenImage(c[4].im.ID); !names(err, "base "+string(c[0].im.Base)) {
		t.Errorf("got %v, want a CorruptError that names the base", err)
	}
	wantNothingStaged(t, s)
	was[10] ^= 1
	putBack(t, path, was)
	if got := fold(t, s); got.Images != 1 {
		t.Errorf("put back: got %+v", got)
	}
	wantMemory(t, s, c[4])
}

func TestAFoldHurriesNobodyAndEndsWhenItIsTold(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	deleteLinks(t, s, c[:4]...)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	if _, err := s.Fold(ctx, 1); !errors.Is(err, context.DeadlineExceeded) { // a byte a second
		t.Errorf("got %v, want that its time is over", err)
	}
	wantNothingStaged(t, s)
	wantMemory(t, s, c[4])
	began := time.Now()
	if _, err := s.Fold(background, 20<<20); err != nil || time.Since(began) < 40*time.Millisecond {
		t.Errorf("a region at 20 MiB/s took %v, %v", time.Since(began), err)
	}
	wantMemory(t, s, c[4])
}

func TestAFullDiskKeepsAFoldFromBeginning(t *testing.T) {
	dir := tmpfs(t, "32m")
	s := reopen(t, dir)
	c := chain(t, s, false)
	deleteLinks(t, s, c[:4]...)
	makeRoom := leave(t, dir, 256<<10)
	if _, err := s.Fold(background, 0); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	wantNothingStaged(t, s)
	wantMemory(t, s, c[4])
	makeRoom()
	if got := fold(t, s); got.Images != 1 {
		t.Errorf("got %+v", got)
	}
	wantMemory(t, s, c[4])
}

func TestImagesAreUsedWhileTheyGetOtherTables(t *testing.T) {
	s := open(t)
	other := reopen(t, s.dir)
	for range 4 {
		c := chain(t, s, false)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, s := range []*Store{s, other} {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					wantMemory(t, s, c[4])
					if err := errors.Join(s.Verify(background, c[4].im.ID), s.Sync(background, c[4].im.ID)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		deleteLinks(t, s, c[:4]...)
		folded := 0
		for range 20 { // whoever has it open keeps a fold from it
			folded += fold(t, s).Images
		}
		close(stop)
		wg.Wait()
		folded += fold(t, s).Images
		if folded == 0 {
			t.Error("nothing was folded; the test shows nothing")
		}
		wantMemory(t, s, c[4])
		deleteLinks(t, s, c[4])
		collect(t, s, nil)
	}
	if left, err := os.ReadDir(s.basesDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

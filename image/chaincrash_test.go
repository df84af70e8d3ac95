package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
	"cubesandbox/internal/powercut"
)

// childOf saves an image, durable or not, or keeps one, that has a page of memory in a
// base.
func childOf(s *Store, id cube.ImageID, base cube.BaseID, durable, keep bool) error {
	w, err := s.Begin(id, 0, base)
	if err != nil {
		return err
	}
	t := pagetable.Table{Names: []string{string(base)}, Files: []pagetable.File{{Key: "main", Entries: []pagetable.Entry{{End: pagetable.PageSize, Name: 1}}}}}
	if err := errors.Join(write(w, content(8192), nil), pagetable.Write(w.Sources, t)); err != nil {
		return err
	}
	if keep {
		_, err = w.KeepBase()
	} else {
		_, err = w.Publish(background, cube.Image{Kind: cube.KindSnapshot}, durable)
	}
	return err
}

// strike is what is done to a chain whose first three images are deleted, and where
// whoever does it is killed.
type strike struct {
	point, do string
	// on says which link it is done to; a new image is made where that is negative.
	on int
}

var strikes = []strike{
	{"image/publish/verified", "child", -1},
	{"image/publish/renamed", "child", -1},
	{"image/publish/synced", "durable-child", -1},
	{"image/publish/renamed", "durable-child", -1},
	{"image/keep/renamed", "keep", -1},
	{"image/sync/synced", "sync", 4},
	{"image/hide/hidden", "hide", 3},
	{"image/park/renamed", "delete", 3},
	{"image/delete/renamed", "delete", 4},
	{"image/free/unnamed", "delete", 4},
	{"image/fold/copied", "fold", 4},
	{"image/fold/placed", "fold", 4},
	{"image/fold/named", "fold", 4},
	{"image/free/unnamed", "fold", 4},
}

// struck makes the chain, and kills.
func struck(t *testing.T, s *Store, k strike, durable bool) []link {
	t.Helper()
	c := chain(t, s, durable)
	if k.do == "delete" && k.point == "image/free/unnamed" {
		deleteLinks(t, s, c[:4]...)
	} else {
		deleteLinks(t, s, c[:3]...)
	}
	id := cube.NewSnapshotID()
	if k.on >= 0 {
		id = c[k.on].im.ID
	}
	kill(t, k.point, k.do, s.dir, string(id), string(c[4].im.Base))
	return c
}

// wantChain fails if an image of the chain that is there is not what was saved, or if
// something is left once all are deleted.
func wantChain(t *testing.T, s *Store, c []link, k strike) {
	t.Helper()
	there := 0
	for i, l := range c {
		if _, err := s.Image(l.im.ID); errors.Is(err, cube.ErrNotFound) {
			continue
		}
		there++
		wantMemory(t, s, l)
		if err := errors.Join(s.Verify(background, l.im.ID), s.Sync(background, l.im.ID)); err != nil {
			t.Errorf("link %d: %v", i, err)
		}
	}
	want := 2
	if k.do == "hide" || k.do == "delete" {
		want = 1
	}
	if k.do == "delete" && k.point == "image/free/unnamed" {
		want = 0
	}
	if there < want {
		t.Errorf("%d of the chain are there, want %d", there, want)
	}
	fold(t, s)
	all, err := s.Images()
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range all {
		if err := s.Verify(background, im.ID); err != nil {
			t.Error(err)
		}
	}
	for _, l := range c {
		if _, err := s.Image(l.im.ID); err == nil {
			wantMemory(t, s, l)
		}
	}
	if _, err := s.Collect(background, false); err != nil {
		t.Error(err)
	}
	wantNothingStaged(t, s)
	for _, im := range all {
		if err := s.Delete(im.ID); err != nil {
			t.Error(err)
		}
	}
	hidden, err := s.Hidden()
	for _, id := range hidden {
		err = errors.Join(err, s.DeleteHidden(id))
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Collect(background, false); err != nil {
		t.Error(err)
	}
	wantBases(t, s)
}

func TestKilledAtAnyPlaceAChainIsWhole(t *testing.T) {
	for _, k := range strikes {
		t.Run(k.do+" "+k.point, func(t *testing.T) {
			s := open(t)
			c := struck(t, s, k, false)
			wantChain(t, reopen(t, s.dir), c, k)
		})
	}
}

func TestKilledAtAnyPlaceBeforeAPowerCutAChainIsWhole(t *testing.T) {
	for _, k := range strikes {
		if k.do == "sync" {
			continue // the chain is durable: what is not may be torn
		}
		t.Run(k.do+" "+k.point, func(t *testing.T) {
			d := disk{powercut.New(t, 64<<20)}
			s := reopen(t, filepath.Join(d.Dir, "s"))
			c := struck(t, s, k, true)
			wantChain(t, d.cut(t), c, k)
		})
	}
}

func TestWhatIsDurableHasDurableBases(t *testing.T) {
	d := disk{powercut.New(t, 128<<20)}
	s := reopen(t, filepath.Join(d.Dir, "s"))
	c := chain(t, s, false) // nothing is on the disk
	deleteLinks(t, s, c[1], c[2])
	if err := s.Hide(c[3].im.ID); err != nil {
		t.Fatal(err)
	}
	child, err := next(s, c[4], true, 4) // names all but the last
	if err != nil {
		t.Fatal(err)
	}
	after := d.cut(t)
	wantMemory(t, after, child)
	if err := after.Verify(background, child.im.ID); err != nil {
		t.Error(err)
	}
	// One that is not durable may be torn with its bases, and says so.
	torn := chain(t, s, false)
	if err := s.Sync(background, torn[4].im.ID); err != nil {
		t.Fatal(err)
	}
	after = d.cut(t)
	wantMemory(t, after, torn[4])
	for _, l := range torn[:4] {
		if im, err := s.Image(l.im.ID); err != nil || !im.Durable {
			t.Errorf("got %+v, %v; want a base to be durable with what is made of it", im, err)
		}
	}
	lost, err := next(s, torn[4], false, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.cut(t).OpenImage(lost.im.ID); !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("what was never synced: got %v, want ErrNotFound or ErrCorrupt; the test shows nothing", err)
	}
}

func TestWhatFailsInAFoldIsUndone(t *testing.T) {
	for _, point := range []string{"image/fold/copied", "image/fold/placed", "image/fold/named", "image/free/unnamed"} {
		s := open(t)
		c := chain(t, s, true)
		deleteLinks(t, s, c[:4]...)
		arm(t, point)
		if _, err := s.Fold(background, 0); err == nil {
			t.Fatalf("%s: it has not failed", point)
		}
		wantMemory(t, s, c[4])
		wantNamed(t, s, c[4].im.ID)
		wantNothingStaged(t, s)
		// What was copied is used, and not copied again.
		got := fold(t, s)
		if point != "image/free/unnamed" && (got.Images != 1 || got.Copied != 0) {
			t.Errorf("%s: the next time: got %+v, want one image and nothing copied", point, got)
		}
		wantMemory(t, s, c[4])
		if _, err := s.Collect(background, false); err != nil || exists(s.baseDir(c[0].im.Base)) {
			t.Errorf("%s: the dead pages are there (%v)", point, err)
		}
	}
	s := open(t)
	c := chain(t, s, true)
	arm(t, "image/park/renamed")
	if err := s.Delete(c[0].im.ID); err == nil {
		t.Fatal("it has not failed")
	}
	wantBases(t, s)
	for _, l := range c {
		wantMemory(t, s, l)
	}
	arm(t, "image/keep/renamed")
	if err := childOf(s, cube.NewSnapshotID(), c[0].im.Base, false, true); err == nil {
		t.Fatal("it has not failed")
	}
	wantBases(t, s)
	if left, err := os.ReadDir(s.stagingDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

package service

import (
	"errors"
	"slices"
	"testing"
	"time"

	cube "cubesandbox"
)

// files reports whether the files of an image are on disk, hidden or not.
func files(w *world, id cube.ImageID) bool {
	for _, im := range w.m.Images() {
		if im.ID == id {
			return true
		}
	}
	return false
}

func TestADeletedSnapshotIsGoneAtOnceAndFreedWithItsLastUser(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	src := w.create()
	snap, err := w.s.Snapshot(ctx, src.ID, cube.Snapshotting{Name: "n"})
	must(t, err)
	child := w.create(func(n *cube.NewSandbox) { n.Template = string(snap.ID) })
	must(t, w.s.Kill(ctx, src.ID))
	must(t, w.s.DeleteImage(ctx, "n"))
	gone := func() {
		t.Helper()
		if _, err := w.s.Create(ctx, cube.NewSandbox{Template: string(snap.ID), Timeout: cube.NeverTimeout}); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("create from it: %v", err)
		}
		if err := w.s.DeleteImage(ctx, string(snap.ID)); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("delete it again: %v", err)
		}
		if page, err := w.s.Snapshots(ctx, cube.SnapshotQuery{}); err != nil || len(page.Snapshots) != 0 {
			t.Errorf("it is listed: %v (%v)", page, err)
		}
		if !files(w, snap.ID) {
			t.Error("its files are gone, and a sandbox that was made from it lives")
		}
	}
	gone()
	w.reopen()
	gone()
	clones, err := w.s.Clone(ctx, child.ID, cube.Cloning{N: 1})
	must(t, err)
	must(t, w.s.Kill(ctx, child.ID))
	gone()
	must(t, w.s.Kill(ctx, clones[0].ID))
	if files(w, snap.ID) {
		t.Error("its files are there, and nothing uses it")
	}
	w.nothingLeft()
}

func TestADeletedTemplateIsGoneAtOnceAndFreedWithItsLastUser(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	must(t, w.s.DeleteImage(ctx, "base"))
	for range 2 {
		if ts, err := w.s.Templates(ctx); err != nil || len(ts) != 0 {
			t.Errorf("got %v (%v)", ts, err)
		}
		if !files(w, w.template) {
			t.Error("its files are gone, and a sandbox that was made from it lives")
		}
		w.reopen()
	}
	must(t, w.s.Kill(ctx, r.ID))
	if files(w, w.template) {
		t.Error("its files are there, and nothing uses it")
	}
}

func TestWhatACrashLeftOfADeletionIsCollected(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	snap, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	stray, err := w.e.Save(ctx, r.ID, cube.NewSnapshotID())
	must(t, err)
	must(t, w.s.images.Hide(snap.ID))
	must(t, w.s.images.Hide(stray.ID))
	for _, dry := range []bool{true, true, false} {
		gs, err := w.s.Collect(ctx, dry)
		if err != nil || len(gs) != 2 || gs[0].Kind != cube.GarbageImage || gs[0].Why == "" {
			t.Errorf("dry %v: got %+v (%v), want both", dry, gs, err)
		}
		if files(w, snap.ID) == !dry || files(w, stray.ID) == !dry {
			t.Errorf("dry %v: files are there: %v", dry, files(w, snap.ID))
		}
	}
	if gs, err := w.s.Collect(ctx, false); err != nil || len(gs) != 0 {
		t.Errorf("afterwards: %+v (%v)", gs, err)
	}
}

func TestWhatAResumedSandboxWasPausedToIsCollectedAndAStrangersIsNot(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r, other := w.create(), w.create()
	im, err := w.e.Pause(ctx, other.ID, cube.NewSnapshotID(), cube.Pausing{}) // behind the service's back
	must(t, err)
	w.close()
	must(t, w.store.Apply(ctx, cube.Batch{DropSandboxes: []cube.SandboxID{other.ID}})) // its record is lost
	w.open()
	must(t, w.s.Pause(ctx, r.ID, cube.Pausing{}))
	left := w.store.record(r.ID).Image
	w.close()
	e := w.m.Open()
	_, err = e.Resume(ctx, cube.CreateSpec{ID: r.ID, Generation: 2, Image: left})
	must(t, err)
	must(t, e.Close())
	w.store.phase(r.ID, func(r *cube.Record) { r.Phase, r.Generation, r.Image = cube.PhaseRunning, 2, "" })
	w.open()
	if files(w, left) {
		t.Error("what it was paused to is still there")
	}
	if !files(w, im.ID) {
		t.Error("the pause image of a sandbox that nobody knows is gone: it was all that somebody had")
	}
}

func TestVerifyReadsAnImageWhole(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	snap, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{Name: "n"})
	must(t, err)
	im, err := w.s.VerifyImage(t.Context(), "n")
	if err != nil || im.ID != snap.ID {
		t.Errorf("got %+v (%v)", im, err)
	}
	must(t, w.m.Corrupt(snap.ID))
	if _, err := w.s.VerifyImage(t.Context(), "n"); !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if _, err := w.s.VerifyImage(t.Context(), "nobody"); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestATemplateThatWasMadeAgainIsNotDeletedByAnOldPlan(t *testing.T) {
	w := newWorld(t)
	old := newPlan(cube.VerbDelete, "")
	old.Image = w.template
	w.close()
	must(t, w.store.Apply(t.Context(), cube.Batch{Plans: []cube.Plan{old}}))
	w.m.AddTemplate([32]byte{1}, limits, nil) // the same id
	w.open()
	if _, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: cube.NeverTimeout}); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	if plans, err := w.store.Plans(t.Context()); err != nil || len(plans) != 0 {
		t.Errorf("plans are left: %v (%v)", plans, err)
	}
}

func TestGarbageIsCollectedAtStartAndOnATimer(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	hide := func() cube.ImageID {
		im, err := w.e.Save(ctx, r.ID, cube.NewSnapshotID())
		must(t, err)
		must(t, w.s.images.Hide(im.ID))
		return im.ID
	}
	first := hide()
	w.reopen()
	if files(w, first) {
		t.Error("a start has not collected what nothing needs")
	}
	w.close()
	w.conf.CollectEvery = time.Millisecond
	w.open()
	second := hide()
	eventually(t, "it is collected", func() bool { return !files(w, second) })
}

func TestWhatAPowerCutHasTornIsLostOnlyIfItWasNeverDurable(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	var snaps [3]cube.Snapshot
	for i := range snaps {
		var err error
		snaps[i], err = w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
		must(t, err)
	}
	eventually(t, "all are durable", func() bool {
		page, err := w.s.Snapshots(ctx, cube.SnapshotQuery{})
		return err == nil && !slices.ContainsFunc(page.Snapshots, func(s cube.Snapshot) bool { return !s.Durable })
	})
	whole, promised, torn := snaps[0].ID, snaps[1].ID, snaps[2].ID
	w.close()
	must(t, w.m.Corrupt(promised))
	must(t, w.m.Tear(torn))
	w.open() // which has read all when it returns
	for id, there := range map[cube.ImageID]bool{whole: true, promised: true, torn: false} {
		if _, ok := w.s.snapshot(id); ok != there {
			t.Errorf("snapshot %s is there: %v, want %v", id, ok, there)
		}
	}
	if _, err := w.s.VerifyImage(ctx, string(promised)); !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("the damaged one that was promised: %v, want that it says so", err)
	}
	if files(w, torn) {
		t.Error("the files of the torn one are left")
	}
}

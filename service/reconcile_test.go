package service

import (
	"errors"
	"slices"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// TestRecordsAndRealityAreBroughtTogether is the table in DESIGN.md: for each
// phase that a killed server can leave, and for what the engine has by then.
func TestRecordsAndRealityAreBroughtTogether(t *testing.T) {
	const gone = cube.Phase("")
	for name, c := range map[string]struct {
		left func(w *world, id cube.SandboxID) // what the killed server leaves
		want cube.Phase
		why  cube.DeathReason
	}{
		"running, and runs": {func(*world, cube.SandboxID) {}, cube.PhaseRunning, ""},
		"running, and dead": {func(w *world, id cube.SandboxID) { must(w.t, w.m.Die(id, cube.DeathSignal, "")) }, cube.PhaseEnded, cube.DeathSignal},
		"running, and nowhere": {func(w *world, id cube.SandboxID) { must(w.t, w.e.Kill(w.t.Context(), id)) },
			cube.PhaseEnded, cube.DeathUnknown},
		"creating, nothing yet": {func(w *world, id cube.SandboxID) {
			must(w.t, w.e.Kill(w.t.Context(), id))
			w.store.phase(id, func(r *cube.Record) { r.Phase = cube.PhaseCreating })
		}, gone, ""},
		"creating, and runs": {func(w *world, id cube.SandboxID) {
			w.store.phase(id, func(r *cube.Record) { r.Phase = cube.PhaseCreating })
		}, gone, ""},
		"pausing, not saved": {func(w *world, id cube.SandboxID) {
			w.store.phase(id, func(r *cube.Record) { r.Phase, r.Image = cube.PhasePausing, cube.NewSnapshotID() })
		}, cube.PhaseRunning, ""},
		"pausing, saved": {func(w *world, id cube.SandboxID) {
			im := cube.NewSnapshotID()
			w.store.phase(id, func(r *cube.Record) { r.Phase, r.Image = cube.PhasePausing, im })
			_, err := w.e.Pause(w.t.Context(), id, im, cube.Pausing{})
			must(w.t, err)
		}, cube.PhasePaused, ""},
		"paused": {func(w *world, id cube.SandboxID) { must(w.t, w.s.Pause(w.t.Context(), id, cube.Pausing{})) }, cube.PhasePaused, ""},
		"paused, its image lost": {func(w *world, id cube.SandboxID) {
			must(w.t, w.s.Pause(w.t.Context(), id, cube.Pausing{}))
			must(w.t, w.m.DeleteImage(w.store.record(id).Image))
		}, cube.PhaseEnded, cube.DeathImage},
		"resuming, not yet": {func(w *world, id cube.SandboxID) {
			must(w.t, w.s.Pause(w.t.Context(), id, cube.Pausing{}))
			w.store.phase(id, func(r *cube.Record) { r.Phase, r.Generation = cube.PhaseResuming, 2 })
		}, cube.PhasePaused, ""},
		"resuming, and runs": {func(w *world, id cube.SandboxID) {
			must(w.t, w.s.Pause(w.t.Context(), id, cube.Pausing{}))
			w.store.phase(id, func(r *cube.Record) { r.Phase, r.Generation = cube.PhaseResuming, 2 })
			r := w.store.record(id)
			_, err := w.e.Resume(w.t.Context(), cube.CreateSpec{ID: id, Generation: 2, Identity: r.Identity, Image: r.Image})
			must(w.t, err)
		}, cube.PhaseRunning, ""},
		"rolling back, in the new life": {func(w *world, id cube.SandboxID) {
			snap, err := w.s.Snapshot(w.t.Context(), id, cube.Snapshotting{Name: ""})
			must(w.t, err)
			w.store.phase(id, func(r *cube.Record) { r.Phase = cube.PhaseRollingBack })
			_, err = w.e.Rollback(w.t.Context(), id, snap.ID)
			must(w.t, err)
			must(w.t, w.s.DeleteImage(w.t.Context(), string(snap.ID)))
		}, cube.PhaseRunning, ""},
		"killing": {func(w *world, id cube.SandboxID) {
			w.store.phase(id, func(r *cube.Record) { r.Phase = cube.PhaseKilling })
		}, cube.PhaseEnded, cube.DeathKilled},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.create(func(n *cube.NewSandbox) { n.Timeout = time.Hour })
			c.left(w, r.ID)
			w.reopen()
			got, err := w.s.Get(t.Context(), r.ID)
			route, rerr := w.s.Route(t.Context(), r.ID)
			var ended *cube.EndedError
			switch {
			case c.want == gone:
				if rerr == nil || errors.As(err, &ended) {
					t.Fatalf("got %+v, %v; want that it never was", route, err)
				}
			case c.want == cube.PhaseEnded:
				if !errors.As(err, &ended) || ended.End.Reason != c.why {
					t.Fatalf("got %v, want ended, %s", err, c.why)
				}
			case err != nil || got.Phase != c.want:
				t.Fatalf("got %s (%v), want %s", got.Phase, err, c.want)
			default:
				if got.Identity.AccessToken != r.Identity.AccessToken {
					t.Error("its token has changed")
				}
				use(t, w, got)
			}
			w.nothingLeft()
		})
	}
}

// use takes what was found through its verbs, to its end.
func use(t *testing.T, w *world, r cube.Record) {
	t.Helper()
	ctx := t.Context()
	if _, _, err := w.s.Connect(ctx, r.ID, cube.Resumption{}); err != nil {
		t.Fatal(err)
	}
	must(t, w.s.Pause(ctx, r.ID, cube.Pausing{}))
	_, err := w.s.Resume(ctx, r.ID, cube.Resumption{})
	must(t, err)
	must(t, w.s.Kill(ctx, r.ID))
}

func TestSnapshotsAndStrayImagesAreBroughtTogetherToo(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	kept, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{Name: "kept"})
	must(t, err)
	half, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{Name: "half"})
	must(t, err)
	lost, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{Name: "lost"})
	must(t, err)
	stray, err := w.e.Save(ctx, r.ID, cube.NewSnapshotID())
	must(t, err)
	eventually(t, "all are durable", func() bool {
		page, err := w.s.Snapshots(ctx, cube.SnapshotQuery{})
		return err == nil && !slices.ContainsFunc(page.Snapshots, func(s cube.Snapshot) bool { return !s.Durable })
	})
	half.State = cube.SnapshotCreating
	must(t, w.store.Apply(ctx, cube.Batch{Snapshots: []cube.Snapshot{half}}))
	must(t, w.m.DeleteImage(lost.ID))
	w.reopen()
	page, err := w.s.Snapshots(ctx, cube.SnapshotQuery{})
	must(t, err)
	got := map[cube.ImageID]bool{}
	for _, s := range page.Snapshots {
		got[s.ID] = true
	}
	if len(got) != 2 || !got[kept.ID] || !got[stray.ID] {
		t.Errorf("got %v, want the one that was kept, %s, and the stray one, %s", got, kept.ID, stray.ID)
	}
	if _, err := (fake.Store{Machine: w.m}).Image(half.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("the half-made one's files: %v", err)
	}
}

func TestUnclaimedMembersAndUnknownSandboxesAreEndedAtStart(t *testing.T) {
	w := newWorld(t)
	if _, err := w.e.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: w.template}); err != nil {
		t.Fatal(err)
	}
	w.reopen()
	w.nothingLeft()
}

func TestAStoreThatFailsChangesNothing(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	full := errors.New("disk full")
	w.store.failing(func(cube.Record) error { return full })
	if err := w.s.Pause(ctx, r.ID, cube.Pausing{}); !errors.Is(err, full) {
		t.Errorf("pause: %v", err)
	}
	if _, err := w.s.Clone(ctx, r.ID, cube.Cloning{N: 2}); !errors.Is(err, full) {
		t.Errorf("clone: %v", err)
	}
	if _, err := w.s.Create(ctx, cube.NewSandbox{Template: "base", Timeout: time.Hour}); !errors.Is(err, full) {
		t.Errorf("create: %v", err)
	}
	if got, err := w.s.Get(ctx, r.ID); err != nil || got.Phase != cube.PhaseRunning {
		t.Errorf("got %+v (%v)", got, err)
	}
	// What fills the disk can still be ended.
	if err := w.s.Kill(ctx, r.ID); err != nil {
		t.Errorf("kill: %v", err)
	}
	w.store.failing(nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

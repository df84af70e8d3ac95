package service

import (
	"context"
	"errors"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// unwritable has no record written that says that a sandbox runs: the end of a verb,
// or that it was taken back.
func unwritable(w *world) {
	w.store.failing(func(r cube.Record) error {
		if r.Phase == cube.PhaseRunning {
			return cube.ErrNoSpace
		}
		return nil
	})
}

// TestAPlanWhoseEndCouldNotBeWrittenDoesNotMeetALaterVerb: a full disk keeps the end of
// one verb from being recorded, the next one goes well, and then comes a start.
func TestAPlanWhoseEndCouldNotBeWrittenDoesNotMeetALaterVerb(t *testing.T) {
	pauseFails := func(w *world, r cube.Record) {
		w.m.Hook(fake.PointSave, func(context.Context) error { return cube.ErrNoSpace })
		if err := w.s.Pause(context.Background(), r.ID, cube.Pausing{}); err == nil {
			w.t.Error("a pause on a full disk is no error")
		}
		w.m.Hook(fake.PointSave, nil)
	}
	for name, c := range map[string]struct {
		first func(w *world, r cube.Record)
		then  func(w *world, r cube.Record)
	}{
		"pause, pause": {pauseFails, func(w *world, r cube.Record) {
			must(w.t, w.s.Pause(context.Background(), r.ID, cube.Pausing{}))
			w.reopen()
		}},
		"pause, a pause that is killed": {pauseFails, func(w *world, r cube.Record) {
			w.crash("service/pause/save", func(s *Service) { s.Pause(context.Background(), r.ID, cube.Pausing{}) })
		}},
		"pause, pause, a resume that fails": {pauseFails, func(w *world, r cube.Record) {
			must(w.t, w.s.Pause(context.Background(), r.ID, cube.Pausing{}))
			w.m.SetMemory(0)
			if _, err := w.s.Resume(context.Background(), r.ID, cube.Resumption{}); !errors.Is(err, cube.ErrNoCapacity) {
				w.t.Errorf("resume: %v", err)
			}
			w.m.SetMemory(64 << 30)
			w.reopen()
		}},
		"recover, pause": {func(w *world, r cube.Record) {
			_, err := w.s.Snapshot(context.Background(), r.ID, cube.Snapshotting{})
			must(w.t, err)
			must(w.t, w.m.Die(r.ID, cube.DeathCrash, ""))
			eventually(w.t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
			if _, err := w.s.Recover(context.Background(), r.ID); !errors.Is(err, cube.ErrNoSpace) {
				w.t.Errorf("recover: %v, want that it could not be completed", err)
			}
		}, func(w *world, r cube.Record) {
			must(w.t, w.s.Pause(context.Background(), r.ID, cube.Pausing{}))
			w.reopen()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.create()
			put(t, w, r.ID, "then")
			unwritable(w)
			c.first(w, r)
			w.store.Fail(nil)
			c.then(w, r)
			got, err := w.s.Resume(t.Context(), r.ID, cube.Resumption{})
			must(t, err)
			if file, token := inside(t, w, r.ID); file != "then" || token != r.Identity.AccessToken {
				t.Errorf("inside there is %q and the token %q", file, token)
			}
			use(t, w, got)
			w.killAll()
			w.nothingLeft()
		})
	}
}

func TestAKillThatFailedIsNotFinishedByALaterStart(t *testing.T) {
	w, e := stubbornWorld(t)
	r := w.create()
	fail := func() error { return cube.ErrUnavailable }
	e.kill.Store(&fail)
	unwritable(w)
	if err := w.s.Kill(t.Context(), r.ID); !errors.Is(err, cube.ErrUnavailable) {
		t.Errorf("kill: %v", err)
	}
	e.kill.Store(nil)
	w.store.Fail(nil)
	must(t, w.s.Pause(t.Context(), r.ID, cube.Pausing{}))
	w.reopen()
	_, err := w.s.Resume(t.Context(), r.ID, cube.Resumption{})
	must(t, err)
	w.killAll()
	w.nothingLeft()
}

func TestAnOldPlanTakesNoAnswerOfALaterTry(t *testing.T) {
	w := newWorld(t)
	full := true
	w.store.Fail(func(b cube.Batch) error {
		if full && (len(b.Answers) > 0 || len(b.DropSandboxes) > 0) {
			return cube.ErrNoSpace
		}
		return nil
	})
	n := cube.NewSandbox{Template: "base", Timeout: time.Hour, Key: "k"}
	if _, err := w.s.Create(t.Context(), n); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	full = false
	r, err := w.s.Create(t.Context(), n)
	must(t, err)
	w.reopen()
	if again, err := w.s.Create(t.Context(), n); err != nil || again.ID != r.ID {
		t.Errorf("the same key gives %s (%v), want %s", again.ID, err, r.ID)
	}
	w.killAll()
	w.nothingLeft()
}

func TestOneThatCannotBeEndedKeepsNobodyFromStarting(t *testing.T) {
	w := newWorld(t)
	r, other := w.create(), w.create()
	e := w.stopInKill(r.ID)
	if got, err := w.s.Get(t.Context(), other.ID); err != nil || got.Phase != cube.PhaseRunning {
		t.Errorf("the other is %s (%v)", got.Phase, err)
	}
	e.kill.Store(nil)
	eventually(t, "it is ended later", func() bool { why, ended := endsFor(w, r.ID); return ended && why.Reason == cube.DeathKilled })
	w.killAll()
	w.nothingLeft()
}

func TestAStartOnAFullDiskServesAndKeepsTheReasonOfADeath(t *testing.T) {
	w := newWorld(t)
	r, other := w.create(), w.create()
	w.close()
	must(t, w.m.Die(r.ID, cube.DeathOOM, "its reason"))
	w.store.Fail(func(cube.Batch) error { return cube.ErrNoSpace })
	w.open()
	must(t, w.s.Kill(t.Context(), other.ID)) // which makes room
	w.store.Fail(nil)
	w.reopen()
	if why, ended := endsFor(w, r.ID); !ended || why.Reason != cube.DeathOOM {
		t.Errorf("it ended: %v, %+v, want %s", ended, why, cube.DeathOOM)
	}
}

func TestALifeOfTheEnginesOwnIsCounted(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := newWorld(t)
		ctx := t.Context()
		r := w.create()
		snap, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
		must(t, err)
		_, err = w.e.Rollback(ctx, r.ID, snap.ID) // as the engine does where a network is lost
		must(t, err)
		put(t, w, r.ID, "then")
		before := w.store.record(r.ID)
		must(t, w.s.Pause(ctx, r.ID, cube.Pausing{}))
		w.close()
		if cut { // the image was durable already, and its record was not
			must(t, w.store.Apply(ctx, cube.Batch{Sandboxes: []cube.Record{before}}))
		}
		w.open()
		got, err := w.s.Resume(ctx, r.ID, cube.Resumption{})
		must(t, err)
		if file, _ := inside(t, w, r.ID); got.Generation != 3 || file != "then" {
			t.Errorf("cut %v: it is of generation %d with %q, want 3", cut, got.Generation, file)
		}
		w.killAll()
		w.nothingLeft()
	}
}

func TestAKillThatWaitsWhileItsSandboxDiesWins(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create(func(n *cube.NewSandbox) { n.AutoRecover = true })
	_, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	in, out := make(chan struct{}), make(chan struct{})
	w.m.Hook(fake.PointSave, func(context.Context) error { close(in); <-out; return nil })
	saved, killed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{}); saved <- err }()
	<-in
	go func() { killed <- w.s.Kill(ctx, r.ID) }()
	eventually(t, "it is condemned", func() bool { _, err := w.s.Get(ctx, r.ID); return err != nil })
	must(t, w.m.Die(r.ID, cube.DeathCrash, ""))
	w.m.Hook(fake.PointSave, nil)
	close(out)
	if err := <-saved; err == nil {
		t.Error("a snapshot of one that died is no error")
	}
	if err := <-killed; err != nil && !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("kill: %v", err)
	}
	if _, err := w.s.Recover(ctx, r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("it can be recovered: %v", err)
	}
	w.reopen()
	w.killAll()
	w.nothingLeft()
}

func TestASnapshotThatIsDeletedDuringARecoveryThatFailsKeepsNoSecrets(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r, snap := dead(t, w)
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	in, out := make(chan struct{}), make(chan struct{})
	w.m.Hook(fake.PointStart, func(context.Context) error { close(in); <-out; return errors.New("no") })
	done := make(chan error, 1)
	go func() { _, err := w.s.Recover(ctx, r.ID); done <- err }()
	<-in
	must(t, w.s.DeleteImage(ctx, string(snap.ID)))
	close(out)
	if err := <-done; err == nil {
		t.Error("it is no error")
	}
	w.m.Hook(fake.PointStart, nil)
	if got := w.store.record(r.ID); got.Recoverable || got.Identity.AccessToken != "" {
		t.Errorf("its record is %+v", got)
	}
	w.reopen()
	w.nothingLeft()
}

func TestTheNextSnapshotIsTakenWhereTheNewestCannotBeRestored(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r, _ := dead(t, w)
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	_, err := w.s.Recover(ctx, r.ID)
	must(t, err)
	put(t, w, r.ID, "newer")
	newest, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	must(t, w.m.Corrupt(newest.ID))
	must(t, w.m.Die(r.ID, cube.DeathCrash, ""))
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	_, err = w.s.Recover(ctx, r.ID)
	must(t, err)
	if file, _ := inside(t, w, r.ID); file != "then" {
		t.Errorf("inside there is %q, want what the older one has", file)
	}
}

func TestACloneThatIsKilledAtOnceCostsTheOthersNothing(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	src := w.create()
	killed := make(chan error, 1)
	first := true
	w.store.Fail(func(b cube.Batch) error {
		// All are about to be found. Whoever kills one waits until it is.
		if len(b.Sandboxes) == 3 && b.Sandboxes[0].Phase == cube.PhaseRunning && first {
			first = false
			id := b.Sandboxes[1].ID
			go func() {
				for {
					if err := w.s.Kill(ctx, id); !errors.Is(err, cube.ErrNotFound) {
						killed <- err
						return
					}
				}
			}()
		}
		return nil
	})
	rs, err := w.s.Clone(ctx, src.ID, cube.Cloning{N: 3})
	if err != nil || len(rs) != 3 {
		t.Errorf("got %d (%v), want three", len(rs), err)
	}
	must(t, <-killed)
	w.killAll()
	w.nothingLeft()
}

var errLate = errors.New("no answer")

// late is an engine whose verbs succeed and are told as failed.
type late struct{ cube.Engine }

func (e late) Pause(ctx context.Context, id cube.SandboxID, im cube.ImageID, p cube.Pausing) (cube.Image, error) {
	return cube.Image{}, errors.Join(errLate, second(e.Engine.Pause(ctx, id, im, p)))
}

func (e late) Resume(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	sb, err := e.Engine.Resume(ctx, spec)
	return sb, errors.Join(errLate, err)
}

func second[T any](_ T, err error) error { return err }

func TestAnErrorThatComesTooLateTakesNothingBack(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	put(t, w, r.ID, "then")
	w.reopenOver(func(c *Config) { c.Engine = late{c.Engine} })
	must(t, w.s.Pause(ctx, r.ID, cube.Pausing{}))
	if got, err := w.s.Get(ctx, r.ID); err != nil || got.Phase != cube.PhasePaused {
		t.Errorf("it is %s (%v), want paused", got.Phase, err)
	}
	_, err := w.s.Resume(ctx, r.ID, cube.Resumption{})
	must(t, err)
	if file, _ := inside(t, w, r.ID); file != "then" {
		t.Errorf("inside there is %q", file)
	}
	w.killAll()
	w.nothingLeft()
}

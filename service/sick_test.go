package service

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// sick is images of which one cannot be made durable.
type sick struct {
	fake.Store
	id cube.ImageID
}

func (s sick) Sync(ctx context.Context, id cube.ImageID) error {
	if id == s.id {
		return errors.New("input/output error")
	}
	return s.Store.Sync(ctx, id)
}

func TestAnImageThatCannotBeMadeDurableStopsNothingElse(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	snap, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	w.reopenOver(func(c *Config) {
		c.Images, c.CollectEvery = sick{fake.Store{Machine: w.m}, snap.ID}, time.Millisecond
	})
	im, err := w.e.Save(ctx, r.ID, cube.NewSnapshotID())
	must(t, err)
	must(t, w.s.images.Hide(im.ID))
	eventually(t, "it is collected", func() bool { return !files(w, im.ID) })
}

// stuck is images that cannot be hidden.
type stuck struct{ fake.Store }

func (stuck) Hide(cube.ImageID) error { return errors.New("input/output error") }

func TestATemplateWhoseDeletionFailsOrIsKilledIsOldOrNew(t *testing.T) {
	w := newWorld(t)
	w.reopenOver(func(c *Config) { c.Images = stuck{fake.Store{Machine: w.m}} })
	if err := w.s.DeleteImage(t.Context(), "base"); err == nil {
		t.Error("a deletion that cannot be is no error")
	}
	if r, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: cube.NeverTimeout}); err != nil {
		t.Errorf("the template is not found any more: %v", err)
	} else {
		must(t, w.s.Kill(t.Context(), r.ID))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.s.DeleteImage(ended, "base"); !errors.Is(err, context.Canceled) {
		t.Errorf("of one who has gone: %v", err)
	}
	for _, step := range []string{"asked", "begun", "hide", "unname", "free"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			if !w.crash("service/delete/"+step, func(s *Service) { s.DeleteImage(context.Background(), "base") }) {
				t.Fatal("it is not passed")
			}
			ts, err := w.s.Templates(t.Context())
			must(t, err)
			names, err := w.names.Names()
			must(t, err)
			if len(ts) != len(names) || len(ts) == 1 && len(ts[0].Names) != 1 {
				t.Errorf("there are %d templates and the names %v", len(ts), names)
			}
			if step != "asked" && len(ts) != 0 {
				t.Error("the template is still there")
			}
		})
	}
}

// reviving is an engine that gives a sandbox another life by itself while a rollback
// fails.
type reviving struct {
	cube.Engine
	own cube.ImageID
}

func (e reviving) Rollback(ctx context.Context, id cube.SandboxID, _ cube.ImageID) (cube.Sandbox, error) {
	sb, err := e.Engine.Rollback(ctx, id, e.own)
	return sb, errors.Join(cube.ErrUnavailable, err)
}

func TestARollbackThatFailsIsNotTakenForAnotherLife(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	snap, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	own, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	w.reopenOver(func(c *Config) { c.Engine = reviving{c.Engine, own.ID} })
	if _, err := w.s.Rollback(ctx, r.ID, string(snap.ID)); !errors.Is(err, cube.ErrUnavailable) {
		t.Errorf("got %v, want that it failed", err)
	}
	if got, err := w.s.Get(ctx, r.ID); err != nil || got.Phase != cube.PhaseRunning || got.Generation != 2 {
		t.Errorf("it is %s in generation %d (%v), want running in the life that there is", got.Phase, got.Generation, err)
	}
	w.killAll()
	w.nothingLeft()
}

// halfKilled starts a service on a sandbox that a kill had begun to end, and whose end
// the engine refuses until e.kill is taken away.
func halfKilled(t *testing.T) (*world, *stubborn, cube.Record) {
	t.Helper()
	w := newWorld(t)
	r := w.create()
	e := w.stopInKill(r.ID)
	<-w.s.looked
	return w, e, r
}

// stopInKill starts the service again as after a stop in the middle of a kill, over an
// engine that refuses to end anything until the kill of what it returns is taken away.
func (w *world) stopInKill(id cube.SandboxID) *stubborn {
	w.t.Helper()
	w.store.phase(id, func(r *cube.Record) { r.Phase = cube.PhaseKilling })
	w.close()
	w.e = w.m.Open()
	e := &stubborn{Engine: w.e}
	fail := func() error { return cube.ErrUnavailable }
	e.kill.Store(&fail)
	w.conf.Engine = e
	s, err := Open(w.t.Context(), w.conf)
	must(w.t, err)
	w.s = s
	return e
}

func TestAVerbWaitsForWhatAStartCouldNotConclude(t *testing.T) {
	w, e, r := halfKilled(t)
	ctx := t.Context()
	_, resume := w.s.Resume(ctx, r.ID, cube.Resumption{})
	_, _, connect := w.s.Connect(ctx, r.ID, cube.Resumption{})
	for verb, err := range map[string]error{"pause": w.s.Pause(ctx, r.ID, cube.Pausing{}), "resume": resume, "connect": connect} {
		if !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "tried again") {
			t.Errorf("%s: %v, want that it is to wait", verb, err)
		}
	}
	e.kill.Store(nil)
	must(t, w.s.Kill(ctx, r.ID))
	w.nothingLeft()
}

func TestWhatAnotherVerbHasEndedIsNotConcludedAgain(t *testing.T) {
	w, e, r := halfKilled(t)
	e.kill.Store(nil)
	w.store.Fail(func(cube.Batch) error { return cube.ErrNoSpace }) // the older plan cannot be dropped
	must(t, w.s.Kill(t.Context(), r.ID))
	w.store.Fail(nil)
	left := map[string]*work{}
	w.s.mu.RLock()
	maps.Copy(left, w.s.plans)
	w.s.mu.RUnlock()
	if len(left) == 0 {
		t.Fatal("no plan is left to be concluded")
	}
	for _, p := range left {
		must(t, w.s.concludeOne(p))
	}
	if plans, err := w.store.Plans(t.Context()); err != nil || len(plans) != 0 {
		t.Errorf("plans are left: %v (%v)", plans, err)
	}
}

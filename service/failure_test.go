package service

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// stubborn is an engine whose Kill can fail.
type stubborn struct {
	cube.Engine
	kill atomic.Pointer[func() error]
}

func (e *stubborn) Kill(ctx context.Context, id cube.SandboxID) error {
	if f := e.kill.Load(); f != nil {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return e.Engine.Kill(ctx, id)
}

func stubbornWorld(t *testing.T) (*world, *stubborn) {
	w := newWorld(t)
	e := &stubborn{}
	w.reopenOver(func(c *Config) { e.Engine, c.Engine = c.Engine, e })
	return w, e
}

func TestWhatIsOverdueAtStartIsPausedAndNotLost(t *testing.T) {
	w := newWorld(t)
	var ids []cube.SandboxID
	for range 20 {
		r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.OnTimeout = time.Hour, cube.OnTimeoutPause })
		ids = append(ids, r.ID)
	}
	w.close()
	for _, id := range ids {
		w.store.phase(id, func(r *cube.Record) { r.EndAt = time.Now().Add(-time.Minute) })
	}
	w.open()
	for _, id := range ids {
		eventually(t, "it is paused", func() bool {
			r, err := w.s.Get(t.Context(), id)
			return err == nil && r.Phase == cube.PhasePaused
		})
		if _, err := w.s.Resume(t.Context(), id, cube.Resumption{Timeout: time.Hour}); err != nil {
			t.Errorf("resume: %v", err)
		}
	}
}

func TestAPauseThatFailsAtATimeoutIsNotTriedAgainAtOnce(t *testing.T) {
	w := newWorld(t)
	var tries atomic.Int32
	w.m.Hook(fake.PointSave, func(context.Context) error {
		tries.Add(1)
		return errors.New("disk full")
	})
	r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.OnTimeout = time.Millisecond, cube.OnTimeoutPause })
	eventually(t, "it was tried", func() bool { return tries.Load() > 0 })
	// Every verb that looks at the timer would set it off again.
	for range 20 {
		w.s.expire(mustFind(t, w, r.ID))
	}
	if n := tries.Load(); n != 1 {
		t.Errorf("%d tries, want one and the next in %v", n, retryAfter)
	}
	// More time is a new beginning.
	w.m.Hook(fake.PointSave, nil)
	must(t, w.s.SetTimeout(t.Context(), r.ID, time.Millisecond))
	eventually(t, "it is paused", func() bool {
		r, err := w.s.Get(t.Context(), r.ID)
		return err == nil && r.Phase == cube.PhasePaused
	})
}

func mustFind(t *testing.T, w *world, id cube.SandboxID) *box {
	t.Helper()
	b, err := w.s.find(id)
	must(t, err)
	return b
}

func TestAKillThatFailsIsToldToAllWhoWaitAndCanBeTriedAgain(t *testing.T) {
	w, e := stubbornWorld(t)
	r := w.create()
	entered, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fail := func() error {
		once.Do(func() { close(entered) })
		<-goOn
		return cube.ErrUnavailable
	}
	e.kill.Store(&fail)
	errs := make(chan error, 2)
	go func() { errs <- w.s.Kill(t.Context(), r.ID) }()
	<-entered
	go func() { errs <- w.s.Kill(t.Context(), r.ID) }()
	if _, err := w.s.Get(t.Context(), r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("while it is being killed: %v", err)
	}
	close(goOn)
	for range 2 {
		if err := <-errs; !errors.Is(err, cube.ErrUnavailable) {
			t.Errorf("got %v, want that it failed", err)
		}
	}
	if got, err := w.s.Get(t.Context(), r.ID); err != nil || got.Phase != cube.PhaseRunning {
		t.Errorf("afterwards: %+v (%v)", got, err)
	}
	e.kill.Store(nil)
	must(t, w.s.Kill(t.Context(), r.ID))
	w.nothingLeft()
}

func TestAKillThatFailsAtATimeoutIsTriedAgain(t *testing.T) {
	w, e := stubbornWorld(t)
	tried := make(chan struct{}, 1)
	fail := func() error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return cube.ErrUnavailable
	}
	e.kill.Store(&fail)
	r := w.create(func(n *cube.NewSandbox) { n.Timeout = time.Millisecond })
	<-tried
	b := mustFind(t, w, r.ID)
	eventually(t, "a timer is set for the next try", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.timer != nil && time.Until(b.retryAt) > retryAfter/2
	})
	e.kill.Store(nil)
	b.retry(time.Time{})
	w.s.expire(b)
	if why, ended := endsFor(w, r.ID); !ended || why.Reason != cube.DeathTimeout {
		t.Errorf("got %+v, ended %v", why, ended)
	}
	w.nothingLeft()
}

// TestWhoeverIsGivenMoreTimeHasIt: at the very moment when the time is over an
// extension is either refused or kept.
func TestWhoeverIsGivenMoreTimeHasIt(t *testing.T) {
	w := newWorld(t)
	for range 200 {
		r := w.create(func(n *cube.NewSandbox) { n.Timeout = time.Millisecond })
		err := w.s.SetTimeout(t.Context(), r.ID, time.Hour)
		if err != nil && !errors.Is(err, cube.ErrNotFound) {
			t.Fatal(err)
		}
		if err != nil {
			continue
		}
		b, ferr := w.s.find(r.ID)
		if ferr != nil {
			t.Fatalf("it was given an hour and has ended: %v", ferr)
		}
		w.s.expire(b)
		if why, ended := endsFor(w, r.ID); ended {
			t.Fatalf("it was given an hour and has ended: %+v", why)
		}
		must(t, w.s.Kill(t.Context(), r.ID))
	}
}

func TestWhatDiesBeforeItCanBeFoundIsFound(t *testing.T) {
	w := newWorld(t)
	src := w.create()
	first := true
	w.store.failing(func(r cube.Record) error {
		if r.Parent == src.ID && r.Phase == cube.PhaseRunning && first { // all are restored, none can be found
			first = false
			return w.m.Die(r.ID, cube.DeathOOM, "")
		}
		return nil
	})
	made, err := w.s.Clone(t.Context(), src.ID, cube.Cloning{N: 2})
	must(t, err)
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, made[0].ID); return ended })
}

func TestASandboxWhoseRecordCannotBeCompletedIsNoneAndLeavesNothing(t *testing.T) {
	w := newWorld(t)
	src := w.create()
	full := errors.New("disk full")
	w.store.failing(func(r cube.Record) error {
		if r.Phase == cube.PhaseRunning {
			return full
		}
		return nil
	})
	if _, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: time.Hour}); !errors.Is(err, full) {
		t.Errorf("create: %v", err)
	}
	if _, err := w.s.Clone(t.Context(), src.ID, cube.Cloning{N: 3}); !errors.Is(err, full) {
		t.Errorf("clone: %v", err)
	}
	w.store.failing(nil)
	must(t, w.s.Kill(t.Context(), src.ID))
	w.nothingLeft()
}

func TestATimeAfterAPauseThatWentWellIsItsOwn(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.OnTimeout = time.Millisecond, cube.OnTimeoutPause })
	paused := func() bool { got, err := w.s.Get(ctx, r.ID); return err == nil && got.Phase == cube.PhasePaused }
	for range 3 { // none of them waits for the next try of the one before
		eventually(t, "it is paused", paused)
		_, err := w.s.Resume(ctx, r.ID, cube.Resumption{Timeout: time.Millisecond})
		must(t, err)
	}
	eventually(t, "it is paused", paused)
}

package service

import (
	"errors"
	"testing"
	"time"

	"context"
	cube "cubesandbox"
	"cubesandbox/fake"
)

func endsFor(w *world, id cube.SandboxID) (cube.Death, bool) {
	_, err := w.s.Get(w.t.Context(), id)
	var ended *cube.EndedError
	if errors.As(err, &ended) {
		_, err := w.s.find(id) // until then its record may be still to be written
		return ended.End, err != nil
	}
	return cube.Death{}, false
}

func TestATimeoutKillsAndSaysSo(t *testing.T) {
	w := newWorld(t)
	r := w.create(func(n *cube.NewSandbox) { n.Timeout = 20 * time.Millisecond })
	eventually(t, "its time is over", func() bool { _, ended := endsFor(w, r.ID); return ended })
	if why, _ := endsFor(w, r.ID); why.Reason != cube.DeathTimeout || why.At.Before(r.StartedAt.Add(20*time.Millisecond)) {
		t.Errorf("ended at %v for %q, want at least 20 ms after %v, for the timeout", why.At, why.Reason, r.StartedAt)
	}
	w.nothingLeft()
}

func TestATimeoutPausesWhereThatIsAskedFor(t *testing.T) {
	w := newWorld(t)
	r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.OnTimeout = 20*time.Millisecond, cube.OnTimeoutPause })
	paused := func() bool {
		got, err := w.s.Get(t.Context(), r.ID)
		return err == nil && got.Phase == cube.PhasePaused
	}
	eventually(t, "it is paused", paused)
	// Paused time does not count: it comes back with its whole timeout.
	back, resumed, err := w.s.Connect(t.Context(), r.ID, cube.Resumption{Timeout: time.Hour})
	if err != nil || !resumed || time.Until(back.EndAt) < 59*time.Minute || back.OnTimeout != cube.OnTimeoutPause {
		t.Errorf("got %+v, resumed %v (%v)", back, resumed, err)
	}
}

func TestASandboxThatCannotBePausedInTimeRunsOn(t *testing.T) {
	w := newWorld(t)
	tried := make(chan struct{}, 1)
	w.m.Hook(fake.PointSave, func(context.Context) error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return errors.New("disk")
	})
	r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.OnTimeout = 10*time.Millisecond, cube.OnTimeoutPause })
	<-tried
	eventually(t, "it runs on", func() bool {
		got, err := w.s.Get(t.Context(), r.ID)
		return err == nil && got.Phase == cube.PhaseRunning
	})
}

func TestConnectNeverShortensAnAbsoluteEnd(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create(func(n *cube.NewSandbox) { n.Timeout = time.Hour })
	got, resumed, err := w.s.Connect(ctx, r.ID, cube.Resumption{Timeout: time.Minute})
	if err != nil || resumed || !got.EndAt.Equal(r.EndAt) {
		t.Errorf("a shorter one: end %v, was %v (%v)", got.EndAt, r.EndAt, err)
	}
	got, _, err = w.s.Connect(ctx, r.ID, cube.Resumption{Timeout: 2 * time.Hour})
	if err != nil || !got.EndAt.After(r.EndAt) {
		t.Errorf("a longer one: end %v, was %v (%v)", got.EndAt, r.EndAt, err)
	}
	if err := w.s.SetTimeout(ctx, r.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, _ = w.s.Get(ctx, r.ID); time.Until(got.EndAt) > time.Minute {
		t.Errorf("timeout does shorten: end %v", got.EndAt)
	}
	if err := w.s.Refresh(ctx, r.ID, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, _ = w.s.Get(ctx, r.ID); time.Until(got.EndAt) < 9*time.Minute {
		t.Errorf("refresh moves the end: %v", got.EndAt)
	}
	if err := w.s.Refresh(ctx, r.ID, time.Second); err != nil {
		t.Fatal(err)
	}
	if later, _ := w.s.Get(ctx, r.ID); !later.EndAt.Equal(got.EndAt) {
		t.Errorf("refresh shortened: %v, was %v", later.EndAt, got.EndAt)
	}
}

func TestTrafficMovesAnIdleEnd(t *testing.T) {
	w := newWorld(t)
	r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.Clock = 50*time.Millisecond, cube.ClockIdle })
	done := w.s.Touch(r.ID)
	other := w.create(func(n *cube.NewSandbox) { n.Timeout, n.Clock = 100*time.Millisecond, cube.ClockIdle })
	eventually(t, "the idle one has ended", func() bool { _, ended := endsFor(w, other.ID); return ended })
	if why, ended := endsFor(w, r.ID); ended {
		t.Fatalf("one with an open stream has ended: %+v", why)
	}
	done()
	eventually(t, "it ends when its stream has", func() bool { _, ended := endsFor(w, r.ID); return ended })
}

func TestTimeoutsGoOnOverARestart(t *testing.T) {
	w := newWorld(t)
	r := w.create(func(n *cube.NewSandbox) { n.Timeout = 100 * time.Millisecond })
	w.reopen()
	if got, err := w.s.Get(t.Context(), r.ID); err == nil && !got.EndAt.Equal(r.EndAt) {
		t.Errorf("end %v, was %v", got.EndAt, r.EndAt)
	}
	eventually(t, "it has ended", func() bool { _, ended := endsFor(w, r.ID); return ended })
}

package service

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cube "cubesandbox"
)

// unhealthyAs waits until a sandbox is said to be unhealthy for a reason.
func (w *world) unhealthyAs(id cube.SandboxID, reason string) (r cube.Record) {
	w.t.Helper()
	eventually(w.t, "it is unhealthy", func() bool {
		var err error
		r, err = w.s.Get(w.t.Context(), id)
		must(w.t, err)
		return r.Unhealthy != nil
	})
	if !strings.Contains(r.Unhealthy.Reason, reason) || time.Since(r.Unhealthy.Since) > time.Minute {
		w.t.Errorf("got %+v, want %q since just now", *r.Unhealthy, reason)
	}
	return r
}

func (w *world) healthy(id cube.SandboxID) {
	w.t.Helper()
	eventually(w.t, "it is healthy", func() bool {
		r, err := w.s.Get(w.t.Context(), id)
		must(w.t, err)
		return r.Unhealthy == nil
	})
}

func TestASandboxWhoseAgentFailsIsUnhealthyUntilItAnswersAgain(t *testing.T) {
	w := newWorld(t)
	r, other := w.create(), w.create()
	w.m.Silence(r.ID, "it takes no connection")
	w.s.Doubt(r.ID, r.Generation)
	got := w.unhealthyAs(r.ID, "it takes no connection")
	page, err := w.s.List(t.Context(), cube.SandboxQuery{})
	must(t, err)
	for _, l := range page.Sandboxes {
		if sick := l.ID == r.ID; sick != (l.Unhealthy != nil) || sick && *l.Unhealthy != *got.Unhealthy {
			t.Errorf("the list has %+v for %s, where %s is the one that is unhealthy", l.Unhealthy, l.ID, r.ID)
		}
	}
	if kept := w.store.record(r.ID); kept.Unhealthy != nil {
		t.Errorf("it is in the store: %+v", *kept.Unhealthy)
	}
	w.m.Silence(r.ID, "")
	w.healthy(r.ID)
	must(t, w.s.Kill(t.Context(), r.ID))
	must(t, w.s.Kill(t.Context(), other.ID))
	w.nothingLeft()
}

func TestARollbackMakesASandboxHealthy(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	snap, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
	must(t, err)
	w.m.Silence(r.ID, "it has not answered in time")
	w.s.Doubt(r.ID, r.Generation)
	w.unhealthyAs(r.ID, "it has not answered in time")
	_, err = w.s.Rollback(ctx, r.ID, string(snap.ID))
	must(t, err)
	if got, err := w.s.Get(ctx, r.ID); err != nil || got.Unhealthy != nil {
		t.Errorf("right after the rollback: %+v (%v), want healthy", got.Unhealthy, err)
	}
	// What was wrong in the old life says nothing about the new one, nor do late doubts.
	before := w.m.Asked()
	w.s.Doubt(r.ID, r.Generation)
	if n := w.m.Asked() - before; n > 1 { // one may have been on its way
		t.Errorf("the new life was asked %d times for a doubt about the old one", n)
	}
}

func TestDoubtsCostOneQuestionAndNoneCostsNothing(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	if n := w.m.Asked(); n != 0 {
		t.Errorf("asked %d times, want not at all before there is a doubt", n)
	}
	for range 1000 {
		w.s.Doubt(r.ID, r.Generation)
	}
	eventually(t, "it was asked", func() bool { return w.m.Asked() > 0 })
	for range 1000 {
		w.s.Doubt(r.ID, r.Generation)
	}
	// The second thousand came within a second of an answer, unless the machine stood still.
	if n := w.m.Asked(); n > 2 {
		t.Errorf("2000 doubts have cost %d questions", n)
	}
	w.s.Doubt(cube.NewSandboxID(), 1) // of nobody
}

func TestNobodyIsAskedWhoDoesNotRun(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	must(t, w.s.Pause(t.Context(), r.ID, cube.Pausing{}))
	w.s.Doubt(r.ID, r.Generation)
	got, err := w.s.Get(t.Context(), r.ID)
	must(t, err)
	if n := w.m.Asked(); n != 0 || got.Unhealthy != nil {
		t.Errorf("a paused sandbox was asked %d times and is %+v", n, got.Unhealthy)
	}
}

// asking is an engine that says something else when it is asked how an agent is.
type asking struct {
	cube.Engine
	ask func(ctx context.Context) error
}

func (a asking) Ask(ctx context.Context, id cube.SandboxID) error {
	if err := a.ask(ctx); err != nil {
		return err
	}
	return a.Engine.Ask(ctx, id)
}

// TestADoubtThatMeetsAVerbIsKept: nothing is learnt while one is at work, nor while the
// keeper is away; then it is asked again.
func TestADoubtThatMeetsAVerbIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var asked atomic.Int32
		w.reopenOver(func(c *Config) {
			c.Engine = asking{c.Engine, func(context.Context) error {
				return [...]error{cube.ErrConflict, cube.ErrUnavailable, nil}[min(2, asked.Add(1)-1)]
			}}
		})
		r := w.create()
		w.m.Silence(r.ID, "it takes no connection")
		w.s.Doubt(r.ID, r.Generation)
		w.unhealthyAs(r.ID, "it takes no connection")
		if n := asked.Load(); n < 3 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestADoubtOfWhichNothingCanBeLearntEnds: and says nothing of the sandbox; the next one
// begins again.
func TestADoubtOfWhichNothingCanBeLearntEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var asked atomic.Int32
		w.reopenOver(func(c *Config) {
			c.Engine = asking{c.Engine, func(context.Context) error { asked.Add(1); return cube.ErrConflict }}
		})
		r := w.create()
		for i := range 2 {
			w.s.Doubt(r.ID, r.Generation)
			<-time.After(time.Hour)
			if n := asked.Load(); n != int32(i+1)*mostUnknown {
				t.Errorf("asked %d times for %d doubts, want %d for each", n, i+1, mostUnknown)
			}
		}
		if got, err := w.s.Get(t.Context(), r.ID); err != nil || got.Unhealthy != nil {
			t.Errorf("it is %+v (%v)", got.Unhealthy, err)
		}
	})
}

// TestAStopOfTheServerIsNotTheSandboxsFault: the question that it cuts off says nothing.
func TestAStopOfTheServerIsNotTheSandboxsFault(t *testing.T) {
	w := newWorld(t)
	begun := make(chan struct{})
	var log bytes.Buffer
	w.reopenOver(func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Engine = asking{c.Engine, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return fmt.Errorf("%w: %w", cube.ErrAgent, ctx.Err())
		}}
	})
	r := w.create()
	w.s.Doubt(r.ID, r.Generation)
	<-begun
	w.close()
	w.open()
	if text := log.String(); strings.Contains(text, "unhealthy") {
		t.Errorf("it was judged: %s", text)
	}
}

func TestAnUnhealthySandboxCanBeKilledAndHoldsUpNoClose(t *testing.T) {
	w := newWorld(t)
	r, left := w.create(), w.create()
	for _, id := range []cube.SandboxID{r.ID, left.ID} {
		w.m.Silence(id, "it has not answered in time")
		w.s.Doubt(id, 1)
		w.unhealthyAs(id, "in time")
	}
	must(t, w.s.Kill(t.Context(), r.ID))
	began := time.Now()
	w.reopen()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closing and opening took %v", took)
	}
	if got, err := w.s.Get(t.Context(), left.ID); err != nil || got.Unhealthy != nil {
		t.Errorf("the next service says %+v (%v) before anybody has asked", got.Unhealthy, err)
	}
}

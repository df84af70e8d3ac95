package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

// dead makes a sandbox with a snapshot in which "file" is "then", and lets it die.
func dead(t *testing.T, w *world, change ...func(*cube.NewSandbox)) (cube.Record, cube.Snapshot) {
	t.Helper()
	r := w.create(change...)
	put(t, w, r.ID, "then")
	snap, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{})
	must(t, err)
	put(t, w, r.ID, "later")
	must(t, w.m.Die(r.ID, cube.DeathCrash, "a panic"))
	return r, snap
}

func put(t *testing.T, w *world, id cube.SandboxID, value string) {
	t.Helper()
	g, err := w.m.Guest(id)
	must(t, err)
	g.Put("file", value)
}

func inside(t *testing.T, w *world, id cube.SandboxID) (file string, token string) {
	t.Helper()
	g, err := w.m.Guest(id)
	must(t, err)
	who, _ := g.Identity()
	return g.Get("file"), who.AccessToken
}

func TestWhatDiedIsOfferedForRecoveryAndComesBackUnderItsID(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r, snap := dead(t, w, func(n *cube.NewSandbox) { n.Metadata = map[string]string{"a": "b"} })
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	_, err := w.s.Get(ctx, r.ID)
	var ended *cube.EndedError
	if !errors.As(err, &ended) || ended.Recovery != snap.ID || ended.End.Reason != cube.DeathCrash {
		t.Fatalf("got %v, want its end and how it can be recovered", err)
	}
	if !strings.Contains(err.Error(), "cube sandbox recover "+string(r.ID)) {
		t.Errorf("%q does not say how", err)
	}
	all, err := w.s.Ended(ctx)
	if err != nil || len(all) != 1 || !all[0].Recoverable || all[0].Image != snap.ID || all[0].Identity.AccessToken != "" {
		t.Errorf("the list of those that ended is %+v (%v)", all, err)
	}
	w.reopen()
	got, err := w.s.Recover(ctx, r.ID)
	must(t, err)
	if got.ID != r.ID || got.Phase != cube.PhaseRunning || got.Generation != r.Generation+1 ||
		got.Identity.AccessToken != r.Identity.AccessToken || got.Metadata["a"] != "b" || got.End != nil || got.RecoveredAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	if file, token := inside(t, w, r.ID); file != "then" || token != r.Identity.AccessToken {
		t.Errorf("inside there is %q and the token %q", file, token)
	}
	if _, err := w.s.Recover(ctx, r.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("one that runs: %v", err)
	}
	if all, _ := w.s.Ended(ctx); len(all) != 0 {
		t.Errorf("it is still among those that ended: %+v", all)
	}
	use(t, w, got)
	must(t, w.s.DeleteImage(ctx, string(snap.ID)))
	w.nothingLeft()
}

func TestWhatCannotBeRecoveredSaysWhy(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	bare := w.create()
	must(t, w.m.Die(bare.ID, cube.DeathOOM, ""))
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, bare.ID); return ended })
	killed := w.create()
	_, err := w.s.Snapshot(ctx, killed.ID, cube.Snapshotting{})
	must(t, err)
	must(t, w.s.Kill(ctx, killed.ID))
	for name, id := range map[string]cube.SandboxID{"without a snapshot": bare.ID, "killed": killed.ID, "never was": cube.NewSandboxID()} {
		if _, err := w.s.Recover(ctx, id); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("%s: %v, want not found", name, err)
		}
		if r, err := w.store.Sandbox(ctx, id); err == nil && r.Identity.AccessToken != "" {
			t.Errorf("%s: its token is kept", name)
		}
	}
}

func TestWithItsLastSnapshotTheSecretsOfADeadSandboxGo(t *testing.T) {
	w := newWorld(t)
	r, snap := dead(t, w)
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	must(t, w.s.DeleteImage(t.Context(), string(snap.ID)))
	if got := w.store.record(r.ID); got.Identity.AccessToken != "" || got.Recoverable || got.End == nil {
		t.Errorf("got %+v", got)
	}
	if _, err := w.s.Recover(t.Context(), r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	w.nothingLeft()
}

func TestWhatWasAskedForComesBackByItselfButNotForEver(t *testing.T) {
	w := newWorld(t)
	auto := func(n *cube.NewSandbox) { n.AutoRecover = true }
	r, _ := dead(t, w, auto)
	running := func(gen cube.Generation) func() bool {
		return func() bool {
			got, err := w.s.Get(t.Context(), r.ID)
			return err == nil && got.Phase == cube.PhaseRunning && got.Generation == gen
		}
	}
	eventually(t, "it is back", running(2))
	must(t, w.m.Die(r.ID, cube.DeathCrash, "again"))
	eventually(t, "it is not back", func() bool { _, ended := endsFor(w, r.ID); return ended })
	// It can be asked for.
	_, err := w.s.Recover(t.Context(), r.ID)
	must(t, err)
	// What dies while no server is there comes back at start.
	w.store.phase(r.ID, func(r *cube.Record) { r.RecoveredAt = time.Now().Add(-time.Hour) })
	w.close()
	must(t, w.m.Die(r.ID, cube.DeathCrash, "once more"))
	w.open()
	eventually(t, "it is back after a start", running(4))
}

// unable is an engine that can bring back all but some.
type unable struct {
	cube.Engine
	but map[cube.SandboxID]bool
}

func (e unable) Resume(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	if e.but[spec.ID] {
		return cube.Sandbox{}, cube.ErrUnavailable
	}
	return e.Engine.Resume(ctx, spec)
}

func TestWhatCannotBeBroughtBackYetIsInNobodysWay(t *testing.T) {
	w := newWorld(t)
	var all []cube.SandboxID
	for range 6 {
		r := w.create(func(n *cube.NewSandbox) { n.AutoRecover = true })
		_, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{})
		must(t, err)
		all = append(all, r.ID)
	}
	w.close()
	for _, id := range all {
		must(t, w.m.Die(id, cube.DeathCrash, ""))
	}
	back := all[0]
	w.openOver(func(c *Config) {
		but := map[cube.SandboxID]bool{}
		for _, id := range all[1:] {
			but[id] = true
		}
		c.Engine = unable{c.Engine, but}
	})
	eventually(t, "one of six is back", func() bool {
		got, err := w.s.Get(t.Context(), back)
		return err == nil && got.Phase == cube.PhaseRunning
	})
	for _, id := range all[1:] {
		if route, err := w.s.Route(t.Context(), id); err != nil || route.Phase != cube.PhaseRecovering {
			t.Errorf("%s is %s (%v), want that it is still tried", id, route.Phase, err)
		}
	}
}

func TestARecoveryThatFailsCanBeTriedAgain(t *testing.T) {
	w := newWorld(t)
	r, snap := dead(t, w)
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	w.m.SetMemory(0)
	if _, err := w.s.Recover(t.Context(), r.ID); !errors.Is(err, cube.ErrNoCapacity) {
		t.Errorf("got %v, want that there is no memory", err)
	}
	if _, err := w.s.Get(t.Context(), r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v, want that it is still ended", err)
	}
	w.m.SetMemory(64 << 30)
	_, err := w.s.Recover(t.Context(), r.ID)
	must(t, err)
	must(t, w.s.Kill(t.Context(), r.ID))
	must(t, w.s.DeleteImage(t.Context(), string(snap.ID)))
	w.nothingLeft()
}

func TestASandboxThatWasPausedWhenTheMachineStoppedIsPaused(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	put(t, w, r.ID, "then")
	running := w.store.record(r.ID)
	must(t, w.s.Pause(t.Context(), r.ID, cube.Pausing{}))
	w.close()
	// The image was durable already, and its record was not.
	must(t, w.store.Apply(context.Background(), cube.Batch{Sandboxes: []cube.Record{running}}))
	w.open()
	got, err := w.s.Resume(t.Context(), r.ID, cube.Resumption{})
	must(t, err)
	if file, _ := inside(t, w, r.ID); file != "then" || got.Generation != 2 {
		t.Errorf("got %q in generation %d", file, got.Generation)
	}
	must(t, w.s.Kill(t.Context(), r.ID))
	w.nothingLeft()
}

func TestAKillOfWhatHasDiedEndsTheHopeForIt(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r, snap := dead(t, w, func(n *cube.NewSandbox) { n.AutoRecover = true })
	eventually(t, "it is back", func() bool { got, err := w.s.Get(ctx, r.ID); return err == nil && got.Generation == 2 })
	w.m.SetMemory(0) // its recovery fails from here on
	w.store.phase(r.ID, func(r *cube.Record) { r.RecoveredAt = time.Time{} })
	must(t, w.m.Die(r.ID, cube.DeathCrash, ""))
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	must(t, w.s.Kill(ctx, r.ID))
	if err := w.s.Kill(ctx, r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
	if got := w.store.record(r.ID); got.Recoverable || got.Identity.AccessToken != "" {
		t.Errorf("its record is %+v", got)
	}
	w.m.SetMemory(64 << 30)
	w.reopen()
	if _, err := w.s.Recover(ctx, r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("it can be recovered: %v", err)
	}
	must(t, w.s.DeleteImage(ctx, string(snap.ID)))
	w.nothingLeft()
}

func TestTimeDoesNotGoBackInARecovery(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r, _ := dead(t, w, func(n *cube.NewSandbox) { n.Timeout = time.Hour })
	eventually(t, "its death is known", func() bool { _, ended := endsFor(w, r.ID); return ended })
	got, err := w.s.Recover(ctx, r.ID)
	if err != nil || !got.EndAt.Equal(r.EndAt) {
		t.Errorf("it ends at %v (%v), want at %v as before", got.EndAt, err, r.EndAt)
	}
	for name, c := range map[string]struct {
		then   cube.OnTimeout
		reason cube.DeathReason
		way    bool
	}{"kill": {cube.OnTimeoutKill, cube.DeathTimeout, false}, "pause": {cube.OnTimeoutPause, cube.DeathCrash, true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.create(func(n *cube.NewSandbox) { n.Timeout, n.OnTimeout, n.AutoRecover = time.Hour, c.then, true })
			_, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{})
			must(t, err)
			w.close()
			must(t, w.m.Die(r.ID, cube.DeathCrash, ""))
			w.store.phase(r.ID, func(r *cube.Record) { r.EndAt = time.Now().Add(-time.Minute) })
			w.open()
			why, ended := endsFor(w, r.ID)
			if !ended || why.Reason != c.reason {
				t.Errorf("it ended: %v, %+v, want %s", ended, why, c.reason)
			}
			if _, err := w.s.Recover(ctx, r.ID); (err == nil) != c.way {
				t.Errorf("recover: %v, want that it works: %v", err, c.way)
			}
		})
	}
}

func TestWhatSomebodyEndedOnPurposeDoesNotComeBack(t *testing.T) {
	w := newWorld(t)
	r := w.create(func(n *cube.NewSandbox) { n.AutoRecover = true })
	_, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{})
	must(t, err)
	w.close()
	e := w.m.Open()
	must(t, e.Kill(t.Context(), r.ID)) // as cube down does, behind the service's back
	must(t, e.Close())
	w.conf.DownAt = time.Now()
	w.open()
	if why, ended := endsFor(w, r.ID); !ended || why.Reason != cube.DeathKilled {
		t.Errorf("it ended: %v, %+v, want killed", ended, why)
	}
	if _, err := w.s.Recover(t.Context(), r.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("it can be recovered: %v", err)
	}
}

func TestWhatIsToComeBackIsToBeWaitedFor(t *testing.T) {
	w := newWorld(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	first := true
	w.store.Fail(func(b cube.Batch) error {
		for _, r := range b.Sandboxes {
			if r.Phase == cube.PhaseRecovering && first {
				first = false
				close(entered)
				<-goOn
			}
		}
		return nil
	})
	r, _ := dead(t, w, func(n *cube.NewSandbox) { n.AutoRecover = true })
	<-entered
	route, err := w.s.Route(t.Context(), r.ID)
	if err != nil || route.Phase != cube.PhaseRecovering {
		t.Errorf("it is %s (%v), want %s", route.Phase, err, cube.PhaseRecovering)
	}
	if got, err := w.s.Get(t.Context(), r.ID); err == nil && seen(got.Phase) == cube.PhaseRunning {
		t.Errorf("it is shown as running")
	}
	close(goOn)
	eventually(t, "it runs", func() bool {
		route, err := w.s.Route(t.Context(), r.ID)
		return err == nil && route.Phase == cube.PhaseRunning
	})
}

// TestWhatHasEndedIsListedAsReturningWhileItIsToBeBroughtBack: and when it is not tried
// any more, as one that somebody may bring back.
func TestWhatHasEndedIsListedAsReturningWhileItIsToBeBroughtBack(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	listed := func() (phase cube.Phase) {
		all, err := w.s.Ended(ctx)
		must(t, err)
		for _, r := range all {
			if r.Recoverable && r.Image != "" {
				phase = r.Phase
			}
		}
		return phase
	}
	r, _ := dead(t, w, func(n *cube.NewSandbox) { n.AutoRecover = true })
	eventually(t, "it is back", func() bool { got, err := w.s.Get(ctx, r.ID); return err == nil && got.Generation == 2 })
	must(t, w.m.Die(r.ID, cube.DeathCrash, ""))
	eventually(t, "it is left as it is: it had only just been brought back", func() bool { return listed() == cube.PhaseEnded })

	_, err := w.s.Recover(ctx, r.ID)
	must(t, err)
	w.m.SetMemory(0) // its recovery fails from here on, until there is room
	w.store.phase(r.ID, func(r *cube.Record) { r.RecoveredAt = time.Time{} })
	w.reopen()
	must(t, w.m.Die(r.ID, cube.DeathCrash, ""))
	eventually(t, "it is to come back", func() bool { return listed() == cube.PhaseRecovering })
}

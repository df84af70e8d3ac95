package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

func TestCreateGivesARunningSandboxWithTokensOfItsOwn(t *testing.T) {
	w := newWorld(t)
	a := w.create(func(n *cube.NewSandbox) { n.Private = true; n.Env = map[string]string{"A": "1"} })
	b := w.create(func(n *cube.NewSandbox) { n.Open = true })
	if a.Phase != cube.PhaseRunning || a.Generation != 1 || a.Template != w.template || a.Alias != "base" || a.Limits != limits {
		t.Errorf("got %+v", a)
	}
	if len(a.Identity.AccessToken) != 64 || len(a.TrafficToken) != 64 || a.Identity.AccessToken == a.TrafficToken {
		t.Errorf("got tokens %q and %q, want two different ones", a.Identity.AccessToken, a.TrafficToken)
	}
	if b.Identity.AccessToken != "" || b.TrafficToken != "" {
		t.Errorf("an open sandbox has tokens %q and %q", b.Identity.AccessToken, b.TrafficToken)
	}
	if got := w.store.History(a.ID); !slices.Equal(got, []cube.Phase{cube.PhaseCreating, cube.PhaseRunning}) {
		t.Errorf("phases on disk were %v, want creating before running", got)
	}
}

func TestStateIsRunningOnlyAfterTheAgentHasAnswered(t *testing.T) {
	w := newWorld(t)
	w.m.Hook(fake.PointStart, func(context.Context) error {
		page, err := w.s.List(t.Context(), cube.SandboxQuery{})
		if err != nil || len(page.Sandboxes) != 0 {
			t.Errorf("while it is being made the list has %v (%v)", page.Sandboxes, err)
		}
		return nil
	})
	w.create()
}

func TestWhatCannotBeMadeLeavesNothing(t *testing.T) {
	w := newWorld(t)
	bad := errors.New("no")
	w.m.Hook(fake.PointStart, func(context.Context) error { return bad })
	if _, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: time.Hour}); !errors.Is(err, bad) {
		t.Errorf("got %v, want the engine's error", err)
	}
	w.nothingLeft()
}

func TestAClientThatGoesAwayDuringCreateLeavesNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.m.Hook(fake.PointStart, func(context.Context) error { cancel(); return nil })
	if _, err := w.s.Create(ctx, cube.NewSandbox{Template: "base", Timeout: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	w.nothingLeft()
}

func TestWrongRequestsSayWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	ctx := t.Context()
	create := func(n cube.NewSandbox) error { _, err := w.s.Create(ctx, n); return err }
	clone := func(c cube.Cloning) error { _, err := w.s.Clone(ctx, r.ID, c); return err }
	snapshot := func(name string) error { _, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{Name: name}); return err }
	list := func(q cube.SandboxQuery) error { _, err := w.s.List(ctx, q); return err }
	nobody := cube.NewSandboxID()
	for name, c := range map[string]struct {
		err  error
		kind error
		text string
	}{
		"no template":         {create(cube.NewSandbox{Timeout: time.Hour}), cube.ErrInvalid, "template"},
		"unknown template":    {create(cube.NewSandbox{Template: "nope", Timeout: time.Hour}), cube.ErrNotFound, `template or snapshot "nope"`},
		"unknown template id": {create(cube.NewSandbox{Template: "tpl-000000000000000000000000", Timeout: time.Hour}), cube.ErrNotFound, "template tpl-"},
		"no timeout":          {create(cube.NewSandbox{Template: "base"}), cube.ErrInvalid, "timeout"},
		"negative timeout":    {w.s.SetTimeout(ctx, r.ID, -5), cube.ErrInvalid, "timeout"},
		"no clones":           {clone(cube.Cloning{}), cube.ErrInvalid, "0 clones"},
		"many clones":         {clone(cube.Cloning{N: 101}), cube.ErrInvalid, "101 clones"},
		"name with a slash":   {snapshot("a/b"), cube.ErrInvalid, `"a/b"`},
		"name like an id":     {snapshot("snap-0123456789abcdef01234567"), cube.ErrInvalid, "looks like an id"},
		"foreign cursor":      {list(cube.SandboxQuery{Cursor: "xx"}), cube.ErrInvalid, "Invalid next token"},
		"cursor, other order": {list(cube.SandboxQuery{Cursor: cursor{time.Now(), "a", true}.String(), Ascending: true}), cube.ErrInvalid, "Invalid next token"},
		"template with tag":   {list(cube.SandboxQuery{Template: "base:x"}), cube.ErrInvalid, "tag"},
		"unknown sandbox":     {w.s.Kill(ctx, nobody), cube.ErrNotFound, string(nobody)},
		"unknown to pause":    {w.s.Pause(ctx, nobody, cube.Pausing{}), cube.ErrNotFound, string(nobody)},
	} {
		if !errors.Is(c.err, c.kind) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v with %q", name, c.err, c.kind, c.text)
		}
	}
}

func TestPauseAndResumeKeepWhoItIs(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create(func(n *cube.NewSandbox) { n.Metadata = map[string]string{"k": "v"}; n.Timeout = time.Hour })
	if err := w.s.Pause(ctx, r.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	p, err := w.s.Get(ctx, r.ID)
	if err != nil || p.Phase != cube.PhasePaused || !p.EndAt.IsZero() || p.Metadata["k"] != "v" {
		t.Errorf("paused: got %+v (%v)", p, err)
	}
	if err := w.s.Pause(ctx, r.ID, cube.Pausing{}); !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "already paused") {
		t.Errorf("pausing twice: got %v", err)
	}
	if w.s.cpus.used != 0 {
		t.Errorf("a paused sandbox holds %d CPUs", w.s.cpus.used)
	}
	back, err := w.s.Resume(ctx, r.ID, cube.Resumption{})
	if err != nil || back.Phase != cube.PhaseRunning || back.Generation <= r.Generation || back.Identity.AccessToken != r.Identity.AccessToken {
		t.Errorf("resumed: got %+v (%v)", back, err)
	}
	if !back.StartedAt.Equal(r.StartedAt) {
		t.Errorf("started at %v, was %v: the order of lists depends on it", back.StartedAt, r.StartedAt)
	}
	if _, err := w.s.Resume(ctx, r.ID, cube.Resumption{}); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("resuming twice: got %v", err)
	}
	if err := w.s.Kill(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	w.nothingLeft()
}

func TestAFailedPauseOrResumeLeavesTheSandboxAsItWas(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create()
	bad := errors.New("disk")
	w.m.Hook(fake.PointSave, func(context.Context) error { return bad })
	if err := w.s.Pause(ctx, r.ID, cube.Pausing{}); !errors.Is(err, bad) {
		t.Fatalf("got %v", err)
	}
	if got, _ := w.s.Get(ctx, r.ID); got.Phase != cube.PhaseRunning || got.Image != "" {
		t.Errorf("after a failed pause: %+v", got)
	}
	w.m.Hook(fake.PointSave, nil)
	if err := w.s.Pause(ctx, r.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	w.m.Hook(fake.PointLoad, func(context.Context) error { return bad })
	if _, _, err := w.s.Connect(ctx, r.ID, cube.Resumption{}); !errors.Is(err, bad) {
		t.Fatalf("got %v", err)
	}
	if got, _ := w.s.Get(ctx, r.ID); got.Phase != cube.PhasePaused {
		t.Errorf("after a failed resume: %+v", got)
	}
	w.m.Hook(fake.PointLoad, nil)
	if _, resumed, err := w.s.Connect(ctx, r.ID, cube.Resumption{}); err != nil || !resumed {
		t.Errorf("the second try: resumed %v, %v", resumed, err)
	}
}

func TestKillEndsPausedSandboxesWithoutAResume(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	if err := w.s.Pause(t.Context(), r.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	w.m.Hook(fake.PointLoad, func(context.Context) error { t.Error("it was resumed"); return nil })
	if err := w.s.Kill(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	w.nothingLeft()
	var ended *cube.EndedError
	if err := w.s.Kill(t.Context(), r.ID); !errors.As(err, &ended) || ended.End.Reason != cube.DeathKilled {
		t.Errorf("the second kill: got %v", err)
	}
}

func TestASandboxThatDiesEndsWithItsReason(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	if err := w.m.Die(r.ID, cube.DeathOOM, "too much"); err != nil {
		t.Fatal(err)
	}
	var ended *cube.EndedError
	eventually(t, "its end is known", func() bool {
		_, err := w.s.Get(t.Context(), r.ID)
		return errors.As(err, &ended)
	})
	if ended.End.Reason != cube.DeathOOM || !strings.Contains(ended.Error(), "too much") {
		t.Errorf("got %v", ended)
	}
	w.nothingLeft()
	route, err := w.s.Route(t.Context(), r.ID)
	if err != nil || route.Phase != cube.PhaseEnded {
		t.Errorf("route: got %+v (%v)", route, err)
	}
}

func TestCloneIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	src := w.create(func(n *cube.NewSandbox) {
		n.Metadata, n.Private, n.Timeout = map[string]string{"k": "v"}, true, time.Hour
	})
	made, err := w.s.Clone(ctx, src.ID, cube.Cloning{N: 3, Concurrency: 2})
	if err != nil || len(made) != 3 {
		t.Fatalf("got %d clones (%v)", len(made), err)
	}
	tokens := map[string]bool{src.Identity.AccessToken: true, src.TrafficToken: true}
	for _, c := range made {
		if c.Parent != src.ID || c.Metadata["k"] != "v" || c.Phase != cube.PhaseRunning || c.Timeout != time.Hour || c.EndAt.IsZero() {
			t.Errorf("clone: %+v", c)
		}
		if tokens[c.Identity.AccessToken] || tokens[c.TrafficToken] {
			t.Error("a clone shares a token")
		}
		tokens[c.Identity.AccessToken], tokens[c.TrafficToken] = true, true
	}
	n := 0
	w.m.Hook(fake.PointStart, func(context.Context) error {
		if n++; n == 3 {
			return errors.New("third")
		}
		return nil
	})
	if _, err := w.s.Clone(ctx, src.ID, cube.Cloning{N: 5}); err == nil {
		t.Error("a clone that cannot be made is no error")
	}
	page, _ := w.s.List(ctx, cube.SandboxQuery{})
	recs, err := w.store.Sandboxes(ctx)
	if err != nil || len(page.Sandboxes) != 4 || len(recs) != 4 {
		t.Errorf("%d sandboxes and %d records (%v), want source and three", len(page.Sandboxes), len(recs), err)
	}
}

func TestWhatIsOverTheLimitIsRefusedBeforeItStarts(t *testing.T) {
	w := newWorld(t)
	w.close()
	w.conf.CPUs = 6
	w.open()
	src := w.create()
	w.m.Hook(fake.PointStart, func(context.Context) error { t.Error("work began"); return nil })
	_, err := w.s.Clone(t.Context(), src.ID, cube.Cloning{N: 3})
	var c *cube.CapacityError
	if !errors.As(err, &c) || c.What != "CPUs" || c.Needed != 6 || c.Free != 4 {
		t.Errorf("CPUs: got %v", err)
	}
	w.m.Hook(fake.PointStart, nil)
	w.m.SetMemory(300 << 20)
	if _, err := w.s.Clone(t.Context(), src.ID, cube.Cloning{N: 2}); !errors.As(err, &c) || c.What != "memory" {
		t.Errorf("memory: got %v", err)
	}
	if err := w.s.Kill(t.Context(), src.ID); err != nil {
		t.Fatal(err)
	}
	w.nothingLeft()
}

func TestRollbackKeepsIdentityAndRefusesForeignSnapshots(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	a, b := w.create(), w.create()
	snap, err := w.s.Snapshot(ctx, a.ID, cube.Snapshotting{Name: "good"})
	if err != nil || snap.State != cube.SnapshotReady {
		t.Fatalf("snapshot: %+v (%v)", snap, err)
	}
	back, err := w.s.Rollback(ctx, a.ID, "good:default")
	if err != nil || back.ID != a.ID || back.Generation <= a.Generation || back.Identity.AccessToken != a.Identity.AccessToken {
		t.Errorf("rollback: %+v (%v)", back, err)
	}
	if got := w.store.History(a.ID); !slices.Contains(got, cube.PhaseRollingBack) {
		t.Errorf("phases on disk were %v, want rolling-back among them", got)
	}
	if _, err := w.s.Rollback(ctx, b.ID, string(snap.ID)); !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "rollback conflict") {
		t.Errorf("foreign snapshot: got %v", err)
	}
	copied := w.create(func(n *cube.NewSandbox) { n.Template = string(snap.ID) })
	if _, err := w.s.Rollback(ctx, copied.ID, string(snap.ID)); err != nil {
		t.Errorf("back to what it was made from: %v", err)
	}
	if copied.Parent != a.ID {
		t.Errorf("parent is %q, want %s", copied.Parent, a.ID)
	}
	if err := w.s.Pause(ctx, a.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.Rollback(ctx, a.ID, string(snap.ID)); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("of a paused sandbox: got %v", err)
	}
}

func TestSnapshotsOutliveTheirSandboxAndCarryItsEnvironment(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	r := w.create(func(n *cube.NewSandbox) { n.Env = map[string]string{"A": "1", "B": "1"} })
	snap, err := w.s.Snapshot(ctx, r.ID, cube.Snapshotting{Name: ""})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.s.Kill(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	c := w.create(func(n *cube.NewSandbox) { n.Template, n.Env = string(snap.ID)+":default", map[string]string{"B": "2"} })
	if e := c.Identity.Env; e["A"] != "1" || e["B"] != "2" {
		t.Errorf("environment %v, want A of the snapshot and B of the request", e)
	}
	if err := w.s.DeleteImage(ctx, string(snap.ID)); err != nil {
		t.Errorf("deleting it while it is used: %v", err)
	}
	if err := w.s.DeleteImage(ctx, string(snap.ID)); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("deleting it twice: %v", err)
	}
	if err := w.s.Kill(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	w.nothingLeft()
}

package service

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	cube "cubesandbox"
)

func TestListsAreCompleteWhileThingsComeAndGo(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	var want []cube.SandboxID
	for range 7 {
		want = append(want, w.create().ID)
	}
	for _, ascending := range []bool{true, false} {
		var got []cube.SandboxID
		q := cube.SandboxQuery{Limit: 2, Ascending: ascending}
		for page := 0; ; page++ {
			p, err := w.s.List(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Sandboxes {
				got = append(got, r.ID)
			}
			if page == 0 { // one of those that were listed goes, another comes
				if err := w.s.Kill(ctx, p.Sandboxes[1].ID); err != nil {
					t.Fatal(err)
				}
			}
			if p.Next == "" {
				break
			}
			q.Cursor = p.Next
		}
		ordered := slices.Clone(want)
		if !ascending {
			slices.Reverse(ordered)
		}
		if !slices.Equal(got, ordered) {
			t.Errorf("ascending %v: got %v, want %v", ascending, got, ordered)
		}
		want = slices.DeleteFunc(want, func(id cube.SandboxID) bool { _, err := w.s.Get(ctx, id); return err != nil })
	}
}

func TestListsAreFiltered(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	meta := func(k, v string) func(*cube.NewSandbox) {
		return func(n *cube.NewSandbox) { n.Metadata = map[string]string{k: v, "all": "yes"} }
	}
	a, b := w.create(meta("k", "1")), w.create(meta("k", "2"))
	if err := w.s.Pause(ctx, b.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		q    cube.SandboxQuery
		want []cube.SandboxID
	}{
		"all, newest first": {cube.SandboxQuery{}, []cube.SandboxID{b.ID, a.ID}},
		"running":           {cube.SandboxQuery{Phases: []cube.Phase{cube.PhaseRunning}}, []cube.SandboxID{a.ID}},
		"paused":            {cube.SandboxQuery{Phases: []cube.Phase{cube.PhasePaused}}, []cube.SandboxID{b.ID}},
		"metadata":          {cube.SandboxQuery{Metadata: map[string]string{"k": "2", "all": "yes"}}, []cube.SandboxID{b.ID}},
		"metadata, other":   {cube.SandboxQuery{Metadata: map[string]string{"k": "2", "all": "no"}}, nil},
		"template by name":  {cube.SandboxQuery{Template: "base"}, []cube.SandboxID{b.ID, a.ID}},
		"template by id":    {cube.SandboxQuery{Template: string(w.template)}, []cube.SandboxID{b.ID, a.ID}},
		"template, unknown": {cube.SandboxQuery{Template: "nope"}, nil},
		"started after":     {cube.SandboxQuery{StartedAfter: b.StartedAt.Truncate(1000)}, []cube.SandboxID{b.ID}},
	} {
		p, err := w.s.List(ctx, c.q)
		var got []cube.SandboxID
		for _, r := range p.Sandboxes {
			got = append(got, r.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v (%v), want %v", name, got, err, c.want)
		}
	}
	if p, _ := w.s.List(ctx, cube.SandboxQuery{}); p.Running != 1 {
		t.Errorf("%d run, want 1", p.Running)
	}
}

func TestSnapshotsAreListedByPagesSourceAndName(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	a, b := w.create(), w.create()
	var ids []cube.ImageID
	for i := range 5 {
		src := a.ID
		if i == 4 {
			src = b.ID
		}
		s, err := w.s.Snapshot(ctx, src, cube.Snapshotting{Name: fmt.Sprintf("n%d", i%2)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	slices.Reverse(ids)
	all := func(q cube.SnapshotQuery) (got []cube.ImageID) {
		for {
			p, err := w.s.Snapshots(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range p.Snapshots {
				got = append(got, s.ID)
			}
			if q.Cursor = p.Next; p.Next == "" {
				return got
			}
		}
	}
	if got := all(cube.SnapshotQuery{Limit: 2}); !slices.Equal(got, ids) {
		t.Errorf("got %v, want %v", got, ids)
	}
	if got := all(cube.SnapshotQuery{Limit: 1, Source: a.ID}); !slices.Equal(got, ids[1:]) {
		t.Errorf("of one sandbox: got %v, want %v", got, ids[1:])
	}
	if got := all(cube.SnapshotQuery{Name: "n0:default"}); !slices.Equal(got, []cube.ImageID{ids[0], ids[2], ids[4]}) {
		t.Errorf("by name: got %v", got)
	}
	if newest, ok := w.s.newestNamed("n0"); !ok || newest.ID != ids[0] {
		t.Errorf("the name means %v, want the newest, %v", newest.ID, ids[0])
	}
	if _, err := w.s.Snapshots(ctx, cube.SnapshotQuery{Cursor: "?"}); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("wrong cursor: %v", err)
	}
}

package service

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// keyed asks for one of the three with a key, and returns the ids that were made.
var keyed = map[string]func(w *world, src cube.SandboxID, key string, other bool) ([]string, error){
	"create": func(w *world, _ cube.SandboxID, key string, other bool) ([]string, error) {
		n := cube.NewSandbox{Template: "base", Timeout: time.Hour, Key: key, Metadata: map[string]string{"a": "b"}}
		if other {
			n.Metadata = nil
		}
		r, err := w.s.Create(w.t.Context(), n)
		return []string{string(r.ID), r.Identity.AccessToken}, err
	},
	"clone": func(w *world, src cube.SandboxID, key string, other bool) ([]string, error) {
		c := cube.Cloning{N: 2, Key: key}
		if other {
			c.N = 3
		}
		rs, err := w.s.Clone(w.t.Context(), src, c)
		var out []string
		for _, r := range rs {
			out = append(out, string(r.ID), r.Identity.AccessToken)
		}
		return out, err
	},
	"snapshot": func(w *world, src cube.SandboxID, key string, other bool) ([]string, error) {
		o := cube.Snapshotting{Name: "n", Key: key}
		if other {
			o.Name = "m"
		}
		s, err := w.s.Snapshot(w.t.Context(), src, o)
		return []string{string(s.ID)}, err
	},
}

func TestTheSameKeyGivesTheSameAnswerAlsoAfterAStart(t *testing.T) {
	for verb, ask := range keyed {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t)
			src := w.create()
			first, err := ask(w, src.ID, "k", false)
			must(t, err)
			again := func(when string) {
				t.Helper()
				got, err := ask(w, src.ID, "k", false)
				if err != nil || strings.Join(got, " ") != strings.Join(first, " ") {
					t.Errorf("%s: got %v (%v), want %v", when, got, err, first)
				}
			}
			again("at once")
			if _, err := ask(w, src.ID, "k", true); !errors.Is(err, cube.ErrKeyReused) || !strings.Contains(err.Error(), "new key") {
				t.Errorf("another request with the key: %v", err)
			}
			w.reopen()
			again("after a start")
			if _, err := ask(w, src.ID, "k", true); !errors.Is(err, cube.ErrKeyReused) {
				t.Errorf("another request with the key, after a start: %v", err)
			}
			fresh, err := ask(w, src.ID, "k2", false)
			if err != nil || fresh[0] == first[0] {
				t.Errorf("another key: %v (%v)", fresh, err)
			}
			w.killAll()
			w.nothingLeft()
			if got, err := ask(w, src.ID, "k", false); !errors.Is(err, cube.ErrNotFound) {
				t.Errorf("after its end: %v (%v), want that it has ended", got, err)
			}
		})
	}
}

func TestManyWithOneKeyAreOne(t *testing.T) {
	for verb, ask := range keyed {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t)
			src := w.create()
			var wg sync.WaitGroup
			var mu sync.Mutex
			got := map[string]bool{}
			for range 16 {
				wg.Go(func() {
					ids, err := ask(w, src.ID, "k", false)
					mu.Lock()
					defer mu.Unlock()
					if got[strings.Join(ids, " ")] = true; err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if len(got) != 1 {
				t.Errorf("%d different answers, want one", len(got))
			}
			w.killAll()
			w.nothingLeft()
		})
	}
}

func TestAKeyWhoseRequestFailedCanBeUsedAgain(t *testing.T) {
	for verb, ask := range keyed {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t)
			src := w.create()
			w.store.Fail(func(b cube.Batch) error {
				if len(b.Answers) > 0 {
					return cube.ErrNoSpace
				}
				return nil
			})
			if _, err := ask(w, src.ID, "k", false); !errors.Is(err, cube.ErrNoSpace) {
				t.Errorf("got %v", err)
			}
			w.store.Fail(nil)
			_, err := ask(w, src.ID, "k", true)
			must(t, err)
			w.killAll()
			w.nothingLeft()
		})
	}
}

func TestKeysAreForgottenAfterADayAndBounded(t *testing.T) {
	w := newWorld(t)
	r, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: time.Hour, Key: "k"})
	must(t, err)
	w.s.conf.Keep = 0
	w.s.forgetAnswers()
	again, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: time.Hour, Key: "k"})
	if err != nil || again.ID == r.ID {
		t.Errorf("got %s (%v), want another", again.ID, err)
	}
	if as, err := w.store.Answers(t.Context()); err != nil || len(as) != 1 {
		t.Errorf("%d answers are kept (%v), want one", len(as), err)
	}
	if _, err := w.s.Create(t.Context(), cube.NewSandbox{Template: "base", Timeout: time.Hour, Key: strings.Repeat("k", 256)}); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("a long key: %v", err)
	}
}

func TestWhatIsAnsweredSurvivesAPowerCut(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	var r cube.Record
	var snap cube.Snapshot
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"create", func() (err error) {
			r, err = w.s.Create(ctx, cube.NewSandbox{Template: "base", Timeout: time.Hour})
			return err
		}},
		{"snapshot", func() (err error) { snap, err = w.s.Snapshot(ctx, r.ID, cube.Snapshotting{}); return err }},
		{"pause", func() error { return w.s.Pause(ctx, r.ID, cube.Pausing{}) }},
		{"resume", func() error { _, err := w.s.Resume(ctx, r.ID, cube.Resumption{}); return err }},
		{"rollback", func() error { _, err := w.s.Rollback(ctx, r.ID, string(snap.ID)); return err }},
		{"clone", func() error { _, err := w.s.Clone(ctx, r.ID, cube.Cloning{N: 2}); return err }},
		{"delete", func() error { return w.s.DeleteImage(ctx, string(snap.ID)) }},
		{"kill", func() error { return w.s.Kill(ctx, r.ID) }},
	} {
		before := w.store.Syncs()
		must(t, c.do())
		if w.store.Syncs() == before {
			t.Errorf("%s is answered and its record not synced", c.name)
		}
	}
}

func TestASnapshotIsAnsweredPublishedAndBecomesDurable(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	snap, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{})
	must(t, err)
	durable := func() bool {
		page, err := w.s.Snapshots(t.Context(), cube.SnapshotQuery{})
		return err == nil && len(page.Snapshots) == 1 && page.Snapshots[0].Durable
	}
	eventually(t, "it is durable", durable)
	if im, err := (fake.Store{Machine: w.m}).Image(snap.ID); err != nil || !im.Durable {
		t.Errorf("its files are not: %+v (%v)", im, err)
	}
	// One that a killed server left undone is made durable by the next.
	undone := snap
	undone.Durable = false
	must(t, w.store.Apply(t.Context(), cube.Batch{Snapshots: []cube.Snapshot{undone}}))
	w.reopen()
	eventually(t, "it is durable after a start", durable)
}

func TestWhatIsLeftOfAnswersIsAnswered(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	src := w.create()
	first, err := w.s.Clone(ctx, src.ID, cube.Cloning{N: 3, Key: "k"})
	must(t, err)
	must(t, w.s.Kill(ctx, first[1].ID))
	again, err := w.s.Clone(ctx, src.ID, cube.Cloning{N: 3, Key: "k"})
	if err != nil || len(again) != 2 || again[0].ID != first[0].ID || again[1].ID != first[2].ID {
		t.Errorf("got %d (%v), want the two that live", len(again), err)
	}
}

// TestTheDigestOfARequestStays: a key must outlive an upgrade. What was not said is not
// in it.
func TestTheDigestOfARequestStays(t *testing.T) {
	got, err := digestOf(cube.VerbCreate, cube.NewSandbox{Template: "base", Timeout: time.Hour, Metadata: map[string]string{"a": ""}})
	must(t, err)
	if want := "cec542a6ac1002c32eb4a30714c43adfc9246c485f5b3c2f799620e7c0d78db3"; got != want {
		t.Errorf("got %s, want %s as ever", got, want)
	}
	without, err := digestOf(cube.VerbCreate, cube.NewSandbox{Template: "base", Timeout: time.Hour})
	if err != nil || without == got {
		t.Errorf("metadata does not count (%v)", err)
	}
}

// TestASnapshotThatAPowerCutHasTornIsTakenBack: its plan does not stay open, and the same
// key makes another.
func TestASnapshotThatAPowerCutHasTornIsTakenBack(t *testing.T) {
	ctx := t.Context()
	for what, tear := range map[string]func(*fake.Machine, cube.ImageID) error{
		"pages": (*fake.Machine).Tear, "manifest": (*fake.Machine).TearManifest,
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			r := w.create()
			o := cube.Snapshotting{Key: "k"}
			var torn cube.ImageID
			w.between = func() {
				for _, im := range w.m.Images() {
					if im.Kind == cube.KindSnapshot {
						torn = im.ID
						must(t, tear(w.m, im.ID))
					}
				}
			}
			if !w.crash("service/snapshot/save", func(s *Service) { s.Snapshot(ctx, r.ID, o) }) || torn == "" {
				t.Fatalf("nothing was torn: %q", torn)
			}
			if plans, err := w.s.Plans(ctx); err != nil || len(plans) > 0 {
				t.Errorf("plans are open: %+v (%v)", plans, err)
			}
			if _, ok := w.s.snapshot(torn); ok || files(w, torn) {
				t.Error("the torn one is there")
			}
			again, err := w.s.Snapshot(ctx, r.ID, o)
			if err != nil || again.ID == torn || again.State != cube.SnapshotReady {
				t.Errorf("with the same key: %+v (%v)", again, err)
			}
		})
	}
}

// TestAPauseThatAPowerCutHasTornHasNotHappened: what it saved cannot be resumed, so the
// sandbox has ended, and says so.
func TestAPauseThatAPowerCutHasTornHasNotHappened(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t)
	r := w.create()
	w.between = func() {
		for _, im := range w.m.Images() {
			if im.Kind == cube.KindPause {
				must(t, w.m.TearManifest(im.ID))
			}
		}
	}
	if !w.crash("service/pause/save", func(s *Service) { s.Pause(ctx, r.ID, cube.Pausing{}) }) {
		t.Fatal("it has not saved")
	}
	if end, ended := endsFor(w, r.ID); !ended || end.Reason == "" {
		t.Errorf("it has ended: %t (%+v)", ended, end)
	}
	w.nothingLeft()
}

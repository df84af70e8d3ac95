package service

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// sharing is a store in which images have memory in each other's pages.
type sharing struct {
	fake.Store

	mu     sync.Mutex // guards the following
	spaces map[cube.ImageID]cube.Space
	freed  int
	folds  []int64 // what each was allowed to read and write in a second
	failed error   // of the next fold
	busy   chan struct{}
}

func (s *sharing) Spaces() map[cube.ImageID]cube.Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces
}

func (s *sharing) FreePages() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed++
	return nil
}

func (s *sharing) Fold(ctx context.Context, perSecond int64) (cube.Folded, error) {
	s.mu.Lock()
	s.folds = append(s.folds, perSecond)
	err, busy := s.failed, s.busy
	s.mu.Unlock()
	if busy != nil {
		select {
		case <-busy:
		case <-ctx.Done():
		}
	}
	return cube.Folded{Images: 1}, err
}

func (s *sharing) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *sharing) count(n func() int) func() bool {
	s.mu.Lock()
	was := n()
	s.mu.Unlock()
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return n() > was
	}
}

// newSharing is a world with such a store, which looks for garbage as often as said.
func newSharing(t *testing.T, every time.Duration) (*world, *sharing) {
	w := newWorld(t)
	images := &sharing{Store: fake.Store{Machine: w.m}}
	w.reopenOver(func(c *Config) { c.Images, c.CollectEvery = images, every })
	return w, images
}

func TestImagesSayWhatTheyTakeAloneAndWithOthers(t *testing.T) {
	w, images := newSharing(t, 5*time.Millisecond)
	images.set(func() { images.spaces = map[cube.ImageID]cube.Space{w.template: {Unique: 3, Shared: 4}} })
	if got := w.s.Spaces(t.Context())[w.template]; got.Unique != 3 || got.Shared != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestOfADeletedImageItIsSaidWhatStaysAndWhy(t *testing.T) {
	w, images := newSharing(t, time.Hour)
	r := w.create()
	snap, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{})
	must(t, err)
	must(t, images.Hide(snap.ID))
	for _, c := range []struct {
		users []cube.ImageID
		want  string
	}{
		{nil, "nothing uses it"},
		{[]cube.ImageID{"snap-a"}, "its pages stay: snap-a has memory in them"},
		{[]cube.ImageID{"snap-a", "snap-b", "snap-c"}, "snap-a has memory in them, and 2 more"},
	} {
		images.set(func() { images.spaces = map[cube.ImageID]cube.Space{snap.ID: {Unique: 7, Users: c.users}} })
		got, err := w.s.Collect(t.Context(), true)
		if err != nil || len(got) != 1 || got[0].Bytes != 7 || !strings.Contains(got[0].Why, c.want) {
			t.Errorf("got %+v, %v; want 7 bytes and %q", got, err, c.want)
		}
	}
}

func TestWhatTheLastSandboxNeededIsFreedBehindItsEnd(t *testing.T) {
	w, images := newSharing(t, 5*time.Millisecond)
	for what, end := range map[string]func(cube.Record) error{
		"kill": func(r cube.Record) error { return w.s.Kill(t.Context(), r.ID) },
		"rollback": func(r cube.Record) error {
			snap, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{})
			if err == nil {
				_, err = w.s.Rollback(t.Context(), r.ID, string(snap.ID))
			}
			return err
		},
	} {
		r := w.create()
		more := images.count(func() int { return images.freed })
		must(t, end(r))
		eventually(t, what+" frees pages", more)
	}
}

func TestFoldsComeAgainByThemselvesAndHoldNothingUp(t *testing.T) {
	w, images := newSharing(t, 5*time.Millisecond)
	folds := func() int { return len(images.folds) }
	eventually(t, "a fold", images.count(folds))
	images.set(func() { images.failed = errors.New("as if") })
	eventually(t, "a fold that fails", images.count(folds))
	eventually(t, "a fold after it", images.count(folds))
	images.set(func() {
		if images.folds[0] != foldPerSecond {
			t.Errorf("it may read and write %d bytes a second, want %d", images.folds[0], foldPerSecond)
		}
		images.busy = make(chan struct{}) // until the service closes
	})
	eventually(t, "a fold that takes its time", images.count(folds))
	r := w.create()
	if _, err := w.s.Snapshot(t.Context(), r.ID, cube.Snapshotting{}); err != nil {
		t.Error(err)
	}
	if err := w.s.Kill(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
	if _, err := w.s.Collect(t.Context(), false); err != nil {
		t.Error(err)
	}
}

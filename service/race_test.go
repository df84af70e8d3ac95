package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// TestEveryAnswerIsTrueWhileManyFireAtOneSandbox: 16 clients fire pause, resume,
// connect and kill at one sandbox at offsets of 0 to 50 ms. Kill wins, every answer
// is one that can be true, and nothing is stuck or left.
func TestEveryAnswerIsTrueWhileManyFireAtOneSandbox(t *testing.T) {
	w := newWorld(t)
	for range 40 {
		r := w.create()
		var wg sync.WaitGroup
		var mu sync.Mutex
		kills := 0
		for client := range 16 {
			verb := client % 4
			after := time.NewTimer(rand.N(50 * time.Millisecond))
			wg.Go(func() {
				<-after.C
				err := fire(t.Context(), w.s, r.ID, verb)
				if err != nil && !errors.Is(err, cube.ErrConflict) && !errors.Is(err, cube.ErrNotFound) {
					t.Errorf("verb %d: %v", verb, err)
				}
				if verb == 3 && err == nil {
					mu.Lock()
					defer mu.Unlock()
					kills++
				}
			})
		}
		wg.Wait()
		if kills != 1 {
			t.Fatalf("%d kills say that they did it, want one", kills)
		}
		if _, err := w.s.Get(t.Context(), r.ID); !errors.Is(err, cube.ErrNotFound) {
			t.Fatalf("after all: %v, want not found", err)
		}
		w.nothingLeft()
	}
}

func fire(ctx context.Context, s cube.Service, id cube.SandboxID, verb int) error {
	switch verb {
	case 0:
		return s.Pause(ctx, id, cube.Pausing{})
	case 1:
		_, err := s.Resume(ctx, id, cube.Resumption{})
		return err
	case 2:
		_, _, err := s.Connect(ctx, id, cube.Resumption{Timeout: time.Hour})
		return err
	default:
		return s.Kill(ctx, id)
	}
}

func TestVerbsOnOneSandboxWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		wg.Go(func() { results <- w.s.Pause(t.Context(), r.ID, cube.Pausing{}) })
	}
	wg.Wait()
	close(results)
	done := 0
	for err := range results {
		if err == nil {
			done++
		} else if !errors.Is(err, cube.ErrConflict) {
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("%d of 8 pauses did it, want one", done)
	}
}

func TestManyWakesAreOneResume(t *testing.T) {
	w := newWorld(t)
	r := w.create(func(n *cube.NewSandbox) { n.AutoResume = true })
	if err := w.s.Pause(t.Context(), r.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			route, err := w.s.Wake(t.Context(), r.ID)
			if err != nil || route.Phase != cube.PhaseRunning || route.Generation != r.Generation+1 {
				t.Errorf("got %+v (%v), want it running in generation %d", route, err, r.Generation+1)
			}
		})
	}
	wg.Wait()
	asleep := w.create()
	if err := w.s.Pause(t.Context(), asleep.ID, cube.Pausing{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.Wake(t.Context(), asleep.ID); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("one that does not resume by itself: %v", err)
	}
}

func TestAKillDoesNotWaitForAPauseThatCanBeGivenUp(t *testing.T) {
	w := newWorld(t)
	r := w.create()
	in := make(chan struct{})
	w.m.Hook(fake.PointSave, func(ctx context.Context) error {
		close(in)
		<-ctx.Done() // as long as the guest likes
		return ctx.Err()
	})
	paused := make(chan error, 1)
	go func() { paused <- w.s.Pause(context.Background(), r.ID, cube.Pausing{}) }()
	<-in
	must(t, w.s.Kill(t.Context(), r.ID))
	if err := <-paused; !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("the pause: %v, want that the sandbox is being killed", err)
	}
	w.nothingLeft()
}

package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestManyFireAtOneSandbox: 16 clients fire pause, resume, connect and kill at one
// sandbox at offsets of 0 to 50 ms, 300 rounds in CI. Every call gets a true answer, kill
// wins, nothing is stuck and nothing is left. Two rounds run at the same time.
func TestManyFireAtOneSandbox(t *testing.T) {
	s.Guard(t)
	rounds := map[string]int{"": 60, "ci": 300, "long": 3000}[lab.Form()]
	lab.ByTwos(rounds, func() bool {
		round(t)
		return true
	})
}

func round(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := s.API.Create(ctx, client.NewSandbox{Template: "base"})
	if err != nil {
		t.Error(err)
		return
	}
	verbs := []func() error{
		func() error { return s.API.Pause(ctx, b.ID) },
		func() error { _, err := s.API.Resume(ctx, b.ID, 0); return err },
		func() error { _, err := s.API.Connect(ctx, b.ID, time.Hour); return err },
		func() error { return s.API.Kill(ctx, b.ID) },
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	kills := 0
	for i := range 16 {
		after := time.NewTimer(rand.N(50 * time.Millisecond))
		wg.Go(func() {
			<-after.C
			err := verbs[i%4]()
			if err != nil && !errors.Is(err, cube.ErrConflict) && !errors.Is(err, cube.ErrNotFound) {
				t.Errorf("verb %d: %v", i%4, err)
			}
			if i%4 == 3 && err == nil {
				mu.Lock()
				defer mu.Unlock()
				kills++
			}
		})
	}
	wg.Wait()
	if kills != 1 {
		t.Errorf("%d kills of %s did it, want one", kills, b.ID)
	}
	if _, err := s.API.Get(ctx, b.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("afterwards %s gives %v, want not found", b.ID, err)
	}
}

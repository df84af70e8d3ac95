package asuser

import (
	"context"
	"errors"
	"testing"

	"cubesandbox/guest/users"
)

// TestWhoWaitsForOthersCanGiveUp: nothing is run for one that has.
func TestWhoWaitsForOthersCanGiveUp(t *testing.T) {
	entered := false
	r := NewRunner(func(context.Context) (int, func(), error) {
		entered = true
		return -1, nil, errors.New("there is no namespace")
	})
	never := func(users.User) error { t.Error("it ran"); return nil }
	for range maxThreads {
		r.slots <- struct{}{} // as long as others work
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Do(ctx, "user", never) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, _, err := r.OpenPTY(ctx, "user"); !errors.Is(err, context.Canceled) {
		t.Errorf("a terminal: %v", err)
	}
	<-r.slots
	if err := r.Do(ctx, "user", never); !errors.Is(err, context.Canceled) || entered {
		t.Errorf("with a slot that is free: %v", err)
	}
	for range 2 { // a failure gives its slot back
		if err := r.Do(t.Context(), "user", never); err == nil || !entered {
			t.Errorf("without a namespace: %v", err)
		}
	}
}

package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestPauseAndResumeKeepEverythingForManyRounds: five sandboxes, each with random
// memory and its digest, a counter, a TCP connection, an environment and two files
// that grow, one of which is never synced, are paused and resumed again and again: by
// hand, at a timeout, and by traffic. Each round finds everything, by the same
// process, and the counter never goes back.
func TestPauseAndResumeKeepEverythingForManyRounds(t *testing.T) {
	guard(t)
	rounds, mib := lab.Pick(2, 20, 200), lab.Pick(64, 64, 300)
	next := make(chan int, 5)
	for i := range cap(next) {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range 2 { // two at the same time
		wg.Go(func() {
			for i := range next {
				if err := manyRounds(t.Context(), i, rounds, mib); err != nil {
					t.Errorf("sandbox %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}

// ways of pausing and of resuming.
var (
	pauses = []func(context.Context, *subject) error{doPause, doTimeout}
	wakes  = []func(context.Context, *subject) error{
		doResume,
		func(ctx context.Context, u *subject) error { _, err := look(ctx, u.box.ID); return err },
		func(ctx context.Context, u *subject) error {
			_, err := users.Connect(ctx, u.box.ID, cube.NeverTimeout)
			return err
		},
	}
)

func manyRounds(ctx context.Context, i, rounds, mib int) (err error) {
	u := &subject{tag: tag()}
	u.box, err = users.Create(ctx, client.NewSandbox{
		Template: "base", Timeout: time.Hour, OnTimeout: cube.OnTimeoutPause, AutoResume: true, Env: map[string]string{"ROUNDS": u.tag},
	})
	if err != nil {
		return err
	}
	if err := startWitness(ctx, u.box, mib); err != nil {
		return err
	}
	first, err := look(ctx, u.box.ID)
	if err != nil {
		return err
	}
	if want := int64(mib) << 20; first.Bytes != want {
		return fmt.Errorf("the witness holds %d bytes, want %d", first.Bytes, want)
	}
	last := first
	for n := range rounds {
		// All six pairs come in turn, each sandbox begins with another.
		pause, wake := pauses[(i+n)%len(pauses)], wakes[(i+n)%len(wakes)]
		now, err := oneRound(ctx, u, pause, wake)
		if err == nil {
			err = errors.Join(now.follows(first), now.follows(last))
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		last = now
	}
	if last.Counter <= first.Counter || last.Said <= first.Said {
		return fmt.Errorf("nothing went on inside: %+v, then %+v", first, last)
	}
	return nil
}

func oneRound(ctx context.Context, u *subject, pause, wake func(context.Context, *subject) error) (h held, err error) {
	if err := pause(ctx, u); err != nil {
		return h, fmt.Errorf("pause: %w", err)
	}
	b, err := users.Get(ctx, u.box.ID)
	if err != nil || b.State != "paused" {
		return h, fmt.Errorf("after the pause its state is %q (%w)", b.State, err)
	}
	if _, err := s.Life(ctx, u.box.ID); err == nil {
		return h, errors.New("it is paused, and its process is there")
	}
	if err := wake(ctx, u); err != nil {
		return h, fmt.Errorf("resume: %w", err)
	}
	if h, err = look(ctx, u.box.ID); err != nil {
		return h, err
	}
	if env, err := sh(ctx, u.box, "echo $ROUNDS"); err != nil || env != u.tag {
		return h, fmt.Errorf("%w: a new process has ROUNDS=%q (%w)", errBroken, env, err)
	}
	// Its time goes on: a timeout of a round must not end the next.
	return h, users.SetTimeout(ctx, u.box.ID, time.Hour)
}

// asleep waits until it is paused; what could not be paused is tried again after half a
// minute. A server that has ended ends it.
func (u *subject) asleep(ctx context.Context) error {
	return lab.Until(50*time.Second, "it is paused at its timeout", func() error {
		b, err := users.Get(ctx, u.box.ID)
		switch {
		case err == nil && b.State == "paused", err != nil && s.HasEnded():
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("its state is %q", b.State)
	})
}

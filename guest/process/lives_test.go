package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"cubesandbox/guest/spawn"
)

// TestWhatIsSetAfterARestoreHasTheTimeOfNow: programs run before the agent is told how long
// the sandbox was in an image. What they set then is not put off by that.
func TestWhatIsSetAfterARestoreHasTheTimeOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inImage = 20 * time.Second
		o := newOutput(maxOutput, stall)
		away := func(name string) *reader {
			r := subscribed(t, o, reading{resumes: true, name: name})
			o.unsubscribe(r, false)
			return r
		}
		start := time.Now()
		before := away("before")
		var old, young deadline
		oldCame := expiry(&old, stall)
		<-time.After(time.Second)
		saved := time.Now()
		<-time.After(inImage)
		after, began := away("after"), time.Now()
		youngCame := expiry(&young, stall)
		o.shift(saved, inImage)
		old.shift(saved, inImage)
		young.shift(saved, inImage)
		if got := before.since.Sub(start); got != inImage {
			t.Errorf("who was away before is so since %v, want %v", got, inImage)
		}
		if got := after.since.Sub(began); got != 0 {
			t.Errorf("who went away after the restore did so %v from then", got)
		}
		o.write(stdout, make([]byte, maxOutput+1))
		if took := time.Since(began); took != stall {
			t.Errorf("the process was held for %v after the restore, want %v", took, stall)
		}
		if at, came := oldCame(); !came || at != stall+inImage {
			t.Errorf("the deadline from before: %v, after %v", came, at)
		}
		if at, came := youngCame(); !came || at != stall {
			t.Errorf("the deadline from after: %v, after %v", came, at)
		}
	})
}

// slowStarter starts nothing until it may.
type slowStarter struct {
	*host
	asked chan struct{}
	may   chan error
}

func (s *slowStarter) Spawn(ctx context.Context, q spawn.Request, fds [3]int) (*spawn.Child, error) {
	s.asked <- struct{}{}
	if err := <-s.may; err != nil {
		return nil, err
	}
	return s.host.Spawn(ctx, q, fds)
}

// TestAProcessThatIsBeingStartedWhenTheSandboxIsSavedIsOfTheNextLifeToo: it has no number
// yet then, and is in no list.
func TestAProcessThatIsBeingStartedWhenTheSandboxIsSavedIsOfTheNextLifeToo(t *testing.T) {
	_, table, h := serve(t)
	slow := &slowStarter{h, make(chan struct{}), make(chan error)}
	table.starter = func(context.Context) (Starter, error) { return slow, nil }
	table.Begin(1, time.Time{})
	deadline := time.Now().Add(time.Hour)
	var p *Process
	var failed error
	ended := make(chan struct{})
	start := func() {
		p, _, failed = table.Start(t.Context(), "root", shell("sleep 1000"), deadline, stock)
		ended <- struct{}{}
	}
	early := time.Now()
	go start()
	<-slow.asked
	table.Shift(early.Add(-time.Second), 24*time.Hour) // it was asked for after that
	saved := time.Now()
	table.Begin(2, saved)
	table.Shift(saved, time.Minute)
	slow.may <- nil
	<-ended
	if failed != nil {
		t.Fatal(failed)
	}
	p.deadline.mu.Lock()
	at := p.deadline.at
	p.deadline.mu.Unlock()
	if lives := p.out.lineage.String(); lives != "1:0,2:0" || at.Sub(deadline) != time.Minute {
		t.Errorf("its lives are %q, its deadline was moved by %v", lives, at.Sub(deadline))
	}
	go start()
	<-slow.asked
	slow.may <- errors.New("no")
	if <-ended; failed == nil || len(table.starting) != 0 {
		t.Errorf("after a start that failed (%v) %d are taken for starting", failed, len(table.starting))
	}
}

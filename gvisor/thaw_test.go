package gvisor

import (
	"context"
	"errors"
	"testing"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

const (
	boxID  cube.SandboxID = "11111111111111111111111111111111"
	lifeA                 = "0000000000000000000000000000000a"
	lifeB                 = "0000000000000000000000000000000b"
	frozen                = keeperapi.StatePaused
)

func current(id string, gen cube.Generation, state keeperapi.State) keeperapi.Life {
	return keeperapi.Life{Life: id, State: state, Labels: keeperapi.Labels{Role: keeperapi.RoleCurrent, Sandbox: boxID, Generation: gen}}
}

// stuck has lives not end until it is called, and tells of resumes, and of kills that
// have failed.
func stuck(f *fakeKeeper) (release func(), failed, resumed chan string) {
	failed, resumed = make(chan string, 100), make(chan string, 100)
	f.on(keeperapi.MethodKill, func(_ context.Context, r *fdrpc.Request) error {
		var q keeperapi.Kill
		r.Decode(&q)
		failed <- q.Life
		return errors.New("the sentry does not end")
	})
	f.on(keeperapi.MethodResume, func(_ context.Context, r *fdrpc.Request) error {
		var q keeperapi.Ref
		err := r.Decode(&q)
		resumed <- q.Life
		return err
	})
	return func() { f.on(keeperapi.MethodKill, nil) }, failed, resumed
}

// TestAFrozenSandboxStaysSoUntilAnotherLifeOfItHasEnded: at take-up and after a
// rollback that failed, whatever looks for idle frozen sandboxes meanwhile.
func TestAFrozenSandboxStaysSoUntilAnotherLifeOfItHasEnded(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *Engine){
		"take-up": func(t *testing.T, e *Engine) {
			if err := e.takeUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"rollback": func(t *testing.T, e *Engine) {
			s := newSandbox(e.keepers.current, current(lifeA, 1, frozen))
			e.enter(s)
			e.giveWay(s, life{lifeB, e.keepers.current}, life{lifeA, e.keepers.current})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, f := fakeEngine(t, 0)
			other := current(lifeB, 2, keeperapi.StateRunning)
			other.Labels.Role = keeperapi.RolePending
			f.has(current(lifeA, 1, frozen), other)
			release, failed, resumed := stuck(f)
			begin(t, e)
			if err := e.resync(t.Context(), e.keepers.current); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if got := soon(t, failed, "another try to end the other life"); got != lifeB {
					t.Fatalf("life %s is ended, want %s", got, lifeB)
				}
			}
			select {
			case l := <-resumed:
				t.Fatalf("life %s runs, and so does %s, which could not be ended", l, lifeB)
			default:
			}
			if s, err := e.Sandbox(t.Context(), boxID); err != nil || s.State != cube.StateFrozen {
				t.Errorf("it is %v (%v), want frozen", s.State, err)
			}
			if _, err := e.lock(boxID); !errors.Is(err, cube.ErrUnavailable) {
				t.Errorf("a verb begins on it: %v", err)
			}
			release()
			if got := soon(t, resumed, "the sandbox runs on"); got != lifeA {
				t.Errorf("life %s runs on, want %s", got, lifeA)
			}
			s, err := e.find(boxID)
			if err != nil || !s.lockAlone(t.Context()) {
				t.Fatal(err)
			}
			defer s.unlock()
			if got := s.view().State; got != cube.StateRunning {
				t.Errorf("it is %s, want running", got)
			}
		})
	}
}

// TestASandboxThatCouldNotBeLetRunIsTriedAgain: for as long as that life is its current
// one.
func TestASandboxThatCouldNotBeLetRunIsTriedAgain(t *testing.T) {
	t.Parallel()
	e, f := fakeEngine(t, 0)
	s := newSandbox(e.keepers.current, current(lifeA, 1, frozen))
	e.enter(s)
	tries := make(chan string, 100)
	f.on(keeperapi.MethodResume, func(context.Context, *fdrpc.Request) error {
		tries <- ""
		return errors.New("busy")
	})
	s.verb <- struct{}{} // a verb has failed
	l, _, _ := s.current()
	e.unfreeze(s, l)
	s.unlock()
	for range 2 {
		soon(t, tries, "a try")
	}
	if got := s.view().State; got != cube.StateFrozen {
		t.Errorf("it is %s, want frozen", got)
	}
	f.on(keeperapi.MethodResume, func(context.Context, *fdrpc.Request) error { tries <- "done"; return nil })
	for soon(t, tries, "another try") != "done" {
	}
	if !s.lockAlone(t.Context()) {
		t.Fatal("it is held")
	}
	if got := s.view().State; got != cube.StateRunning {
		t.Errorf("it is %s, want running", got)
	}
	s.adopt(e.keepers.current, current(lifeB, 2, frozen))
	s.unlock()
	if !e.thawIdle(s, l) || len(tries) > 0 {
		t.Errorf("a life that is not the current one any more is let run (%d tries)", len(tries))
	}
}

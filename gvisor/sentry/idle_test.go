package sentry

import (
	"testing"
	"time"
)

func TestALifeThatDoesNothingForAWhileGivesBackMemoryOnce(t *testing.T) {
	const nothing, something = idleLook / idleShare / 2, idleLook / idleShare
	i := &idleness{}
	cpu := time.Minute
	look := func(used time.Duration) bool {
		cpu += used
		return i.look(cpu, idleLook)
	}
	for round := range 2 {
		if look(something) {
			t.Errorf("round %d: it has worked", round)
		}
		for n := range 3 * idleLooks {
			if got, want := look(nothing), n == idleLooks-1; got != want {
				t.Errorf("round %d: idle for %d looks: got %v", round, n+1, got)
			}
		}
	}
	for range 2 * idleLooks {
		if (&idleness{looks: idleLooks - 1}).look(0, idleLook) {
			t.Error("it is not known what it uses")
		}
	}
}

package campaign

import (
	"testing"

	"cubesandbox/e2e/lab"
)

// TestNothingIsLostWhereverTheServerIsKilled: each verb is done once to learn the fail
// points that it passes, and then once for each pass of each of them, with a server
// that is ended by SIGKILL there. The next server finds each sandbox in its old or its
// new state, with its process, memory, files, connections and tokens; what was asked
// for with an idempotency key is made once; other sandboxes have not noticed; every
// image reads whole; and nothing is left.
func TestNothingIsLostWhereverTheServerIsKilled(t *testing.T) {
	keep(t)
	ctx, chance := t.Context(), lab.Chance(t, sampleSeed)
	tb := &table{}
	defer tb.store(t, "faults")
	for _, v := range sample(chance, verbs(), lab.Pick(3, -1, -1)) {
		missed, cases := 0, sample(chance, tb.learn(t, v), lab.Pick(3, -1, -1))
		for _, at := range cases {
			r, _ := strike(ctx, v, at)
			tb.add(t, r)
			if !r.Reached {
				missed++
				t.Logf("%s does not come by %s each time", v.name, at)
			}
		}
		// What is done beside a verb may come before or after it; not much does.
		if missed*5 > len(cases) {
			t.Errorf("%s: the server was not killed in %d of %d cases", v.name, missed, len(cases))
		}
		t.Logf("%s: killed at %d boundaries", v.name, len(cases)-missed)
	}
}

// TestNothingIsLostWhereTheNextServerIsKilledToo: the server is killed at a boundary of
// a verb, and the next one while it finishes that verb or takes it back.
func TestNothingIsLostWhereTheNextServerIsKilledToo(t *testing.T) {
	keep(t)
	ctx, chance := t.Context(), lab.Chance(t, sampleSeed)
	tb := &table{}
	defer tb.store(t, "faults-twice")
	reached := 0
	for _, v := range sample(chance, verbs(), lab.Pick(1, -1, -1)) {
		for _, at := range sample(chance, tb.learn(t, v), lab.Pick(1, 1, 6)) {
			r, passed := strike(ctx, v, at)
			tb.add(t, r)
			for _, again := range sample(chance, passed, lab.Pick(2, 1, 4)) {
				r, _ := strike(ctx, v, at, again)
				tb.add(t, r)
				if r.Reached {
					reached++
				}
			}
		}
	}
	if reached == 0 {
		t.Error("no second server was killed")
	}
}

// TestAVerbThatFailsAtABoundaryHappensOrDoesNot: an error, a panic or a wait there. The
// verb fails or succeeds, and what then is there is one of the two, whole, with a
// server that goes on.
func TestAVerbThatFailsAtABoundaryHappensOrDoesNot(t *testing.T) {
	keep(t)
	ctx, chance := t.Context(), lab.Chance(t, sampleSeed)
	tb := &table{}
	defer tb.store(t, "failures")
	for _, v := range sample(chance, verbs(), lab.Pick(1, -1, -1)) {
		passed := tb.learn(t, v)
		for _, c := range sample(chance, actions(passed), lab.Pick(3, 2, -1)) {
			r := trip(ctx, v, c.at, c.action)
			tb.add(t, r)
			if c.action == wait && !r.Answered {
				t.Errorf("%s: it is not answered where it takes longer at %s", v.name, c.at)
			}
		}
	}
}

// wait is an action that must not harm.
const wait = "sleep(50ms)"

type act struct {
	at     boundary
	action string
}

// actions are what can happen at boundaries, but for the server's death.
func actions(at []boundary) (all []act) {
	for _, b := range at {
		for _, action := range []string{"error(no luck)", "panic", wait} {
			all = append(all, act{b, action})
		}
	}
	return all
}

// learn notes how a verb goes that nothing happens to, and returns what it passes.
func (tb *table) learn(t *testing.T, v verb) []boundary {
	t.Helper()
	passed, r := learn(t.Context(), v)
	tb.add(t, r)
	if len(passed) == 0 {
		t.Errorf("%s passes no fail point", v.name)
	}
	return passed
}

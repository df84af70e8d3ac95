package campaign

import (
	"testing"
)

// TestNothingIsLostWhereverTheServerIsKilled: each verb is done once to learn the fail
// points that it passes, and then once for each pass of each of them, with a server
// that is ended by SIGKILL there. The next server finds each sandbox in its old or its
// new state, with its process, memory, files, connections and tokens; what was asked
// for with an idempotency key is made once; other sandboxes have not noticed; every
// image reads whole; and nothing is left.
func TestNothingIsLostWhereverTheServerIsKilled(t *testing.T) {
	keep(t)
	ctx, chance := t.Context(), chance(t)
	tb := &table{}
	defer tb.store(t, "faults")
	for _, v := range sample(chance, verbs(), form(4, -1, -1)) {
		passed, r := learn(ctx, v)
		tb.add(t, r)
		if len(passed) == 0 {
			t.Errorf("%s passes no fail point", v.name)
		}
		missed := 0
		for _, at := range sample(chance, passed, form(3, -1, -1)) {
			r := strike(ctx, v, at)
			tb.add(t, r)
			if !r.Reached {
				missed++
				t.Logf("%s does not come by %s each time", v.name, at)
			}
		}
		// What is done beside a verb may come before or after it; not much does.
		if missed*5 > len(passed) {
			t.Errorf("%s: the server was not killed in %d of %d cases", v.name, missed, len(passed))
		}
	}
}

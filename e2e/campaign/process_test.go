package campaign

import (
	"testing"

	"cubesandbox/e2e/lab"
)

// TestNothingIsLostWhateverElseIsKilledOrStopped: at each boundary of each verb the
// server is held, and sentries, their agents, keeper, network process, or the last two
// together, are ended by SIGKILL, or stopped for a while and then continued or ended. The verb
// happens or fails, and is not between; sandboxes that did not die go on; those that
// did are reported with the reason, and recovered where they were ever saved; nothing
// is left.
func TestNothingIsLostWhateverElseIsKilledOrStopped(t *testing.T) {
	keep(t)
	ctx, chance := t.Context(), lab.Chance(t, sampleSeed)
	tb := &table{}
	defer tb.store(t, "blows")
	reached, cases := 0, 0
	for _, v := range sample(chance, verbs(), lab.Pick(2, -1, -1)) {
		passed := tb.learn(t, v)
		type pair struct {
			at boundary
			b  blow
		}
		var pairs []pair
		for _, at := range passed {
			for _, b := range blows() {
				pairs = append(pairs, pair{at, b})
			}
		}
		pairs = sample(chance, pairs, lab.Pick(2, 2, 40))
		for _, p := range pairs {
			r := hit(ctx, v, p.at, p.b)
			cases++
			tb.add(t, r)
			if r.Reached {
				reached++
			}
		}
	}
	// What is done beside a verb may come before or after it.
	if reached*2 < cases {
		t.Errorf("the server was at the boundary in %d of %d cases", reached, cases)
	}
}

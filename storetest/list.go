package storetest

import (
	"time"

	cube "cubesandbox"
)

func lists() []promise {
	return []promise{
		{"list: each kind by its time to the nanosecond, then by id; ended sandboxes too", func(x *X) {
			m := newModel()
			x.is(m)
			var b cube.Batch
			start := time.Now()
			for range 200 {
				r, snap, plan, answer := x.gen.record(), x.gen.snapshot(), x.gen.plan(), x.gen.answer()
				r.StartedAt, snap.CreatedAt, plan.BeganAt, answer.At = x.near(start), x.near(start), x.near(start), x.near(start)
				r.Phase = []cube.Phase{cube.PhaseRunning, cube.PhaseEnded}[x.gen.IntN(2)]
				b.Sandboxes, b.Snapshots = append(b.Sandboxes, r), append(b.Snapshots, snap)
				b.Plans, b.Answers = append(b.Plans, plan), append(b.Answers, answer)
			}
			b.Sandboxes[0].StartedAt, b.Snapshots[0].CreatedAt = time.Time{}, time.Time{}
			b.Plans[0].BeganAt, b.Answers[0].At = time.Time{}, time.Time{}
			x.apply(b)
			m.apply(b)
			x.is(m)
			x.reopen()
			x.is(m)
		}},
		{"list: a snapshot stays when the records of its sandbox go", func(x *X) {
			m := newModel()
			r, snap := x.gen.record(), x.gen.snapshot()
			snap.Source = r.ID
			for _, b := range []cube.Batch{{Sandboxes: []cube.Record{r}, Snapshots: []cube.Snapshot{snap}}, {DropSandboxes: []cube.SandboxID{r.ID}}} {
				x.apply(b)
				m.apply(b)
				x.is(m)
			}
		}},
	}
}

// near is one of few moments, in any zone, so that many are the same.
func (x *X) near(t time.Time) time.Time {
	zone := time.FixedZone("", x.gen.IntN(12)*3600)
	return t.Add(time.Duration(x.gen.IntN(20))).In(zone)
}

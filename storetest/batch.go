package storetest

import (
	"encoding/json"

	cube "cubesandbox"
)

// batches are the promises about all kinds together.
func batches() []promise {
	return []promise{
		{"batch: after any batches the store holds what was put last and not dropped, also for the next that opens it", func(x *X) {
			m := newModel()
			for range 20 {
				for range 8 {
					b := x.gen.batch(m, 4)
					x.apply(b)
					m.apply(b)
				}
				x.is(m)
				x.reopen()
				x.is(m)
			}
			if len(m.sandboxes)*len(m.snapshots)*len(m.plans)*len(m.answers) == 0 {
				x.Errorf("nothing is left of a kind in %+v: nothing is shown of it", m)
			}
		}},
		{"batch: of one that cannot be applied nothing is, of no kind", func(x *X) {
			m := newModel()
			for range 20 {
				b := x.gen.batch(m, 4)
				x.apply(b)
				m.apply(b)
			}
			for range 20 {
				b := x.gen.batch(m, 4)
				bad := x.gen.record()
				bad.Network = json.RawMessage(`{`) // is no JSON
				at := x.gen.IntN(len(b.Sandboxes) + 1)
				b.Sandboxes = append(b.Sandboxes[:at:at], append([]cube.Record{bad}, b.Sandboxes[at:]...)...)
				x.wantError(x.s.Apply(x.ctx, b), cube.ErrInvalid, "apply what is no JSON")
				x.is(m)
			}
			b := x.gen.batch(m, 4)
			x.apply(b)
			m.apply(b)
			x.is(m)
		}},
		{"batch: an empty one is no error and changes nothing", func(x *X) {
			m := newModel()
			x.apply(cube.Batch{})
			x.is(m)
			b := x.gen.batch(m, 4)
			x.apply(b)
			m.apply(b)
			x.apply(cube.Batch{})
			x.is(m)
		}},
		{"batch: what is dropped is gone, again and also if it never was; nothing else is", func(x *X) {
			m := newModel()
			b := cube.Batch{Sandboxes: []cube.Record{x.gen.record(), x.gen.record()}, Snapshots: []cube.Snapshot{x.gen.snapshot(), x.gen.snapshot()},
				Plans: []cube.Plan{x.gen.plan(), x.gen.plan()}, Answers: []cube.Answer{x.gen.answer(), x.gen.answer()}}
			x.apply(b)
			m.apply(b)
			x.is(m)
			for _, d := range []cube.Batch{
				{DropSandboxes: []cube.SandboxID{b.Sandboxes[0].ID}}, {DropSnapshots: []cube.ImageID{b.Snapshots[0].ID}},
				{DropPlans: []string{b.Plans[0].ID}}, {DropAnswers: []string{b.Answers[0].Key}},
				{DropSandboxes: []cube.SandboxID{cube.NewSandboxID(), ""}, DropSnapshots: []cube.ImageID{cube.NewSnapshotID(), ""},
					DropPlans: []string{cube.NewPlanID(), "'"}, DropAnswers: []string{"never", "%"}},
			} {
				for range 2 {
					x.apply(d)
					m.apply(d)
					x.is(m)
				}
			}
			x.reopen()
			x.is(m)
			_, err := x.s.Sandbox(x.ctx, b.Sandboxes[0].ID)
			x.wantError(err, cube.ErrNotFound, "get what was dropped")
		}},
	}
}

// batch puts and drops up to n of each kind, old ones and new ones.
func (g generator) batch(m *model, n int) (b cube.Batch) {
	b.Sandboxes, b.DropSandboxes = some(g, m.sandboxes, n, g.record, func(r *cube.Record, id cube.SandboxID) { r.ID = id })
	b.Snapshots, b.DropSnapshots = some(g, m.snapshots, n, g.snapshot, func(s *cube.Snapshot, id cube.ImageID) { s.ID = id })
	b.Plans, b.DropPlans = some(g, m.plans, n, g.plan, func(p *cube.Plan, id string) { p.ID = id })
	b.Answers, b.DropAnswers = some(g, m.answers, n, g.answer, func(a *cube.Answer, key string) { a.Key = key })
	return b
}

// some drops a third of the at most n old ones that it meets, changes a third, and puts
// up to n new ones.
func some[K comparable, V any](g generator, have map[K]V, n int, fresh func() V, name func(*V, K)) (put []V, drop []K) {
	met := 0
	for k := range have {
		if met++; met > n {
			break
		}
		switch g.IntN(3) {
		case 0:
			drop = append(drop, k)
		case 1:
			v := fresh()
			name(&v, k)
			put = append(put, v)
		}
	}
	for range g.IntN(n + 1) {
		put = append(put, fresh())
	}
	return put, drop
}

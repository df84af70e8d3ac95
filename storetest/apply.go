package storetest

import (
	"encoding/json"
	"fmt"
	"sync"

	cube "cubesandbox"
)

// rounds is how many random values are tried.
const rounds = 300

func applies() []promise {
	return []promise{
		{"put: what is put is got back equal, also by the next that opens it", func(x *X) {
			var all []cube.Record
			for range rounds {
				r := x.gen.record()
				x.put(r)
				x.holds(r)
				all = append(all, r)
			}
			x.reopen()
			for _, r := range all {
				x.holds(r)
			}
			if got := x.all(); len(got) != len(all) {
				x.Errorf("got %d records, want %d", len(got), len(all))
			}
		}},
		{"put: an id that is there is replaced, nothing of the old record is left", func(x *X) {
			old := x.gen.record()
			for range rounds {
				r := x.gen.record()
				r.ID = old.ID
				x.put(r)
				x.holds(r)
			}
			if got := x.all(); len(got) != 1 {
				x.Errorf("got %d records, want 1", len(got))
			}
		}},
		{"put: several are stored, all of them", func(x *X) {
			x.put()
			var all []cube.Record
			for range 100 {
				all = append(all, x.gen.record())
			}
			x.put(all...)
			for _, r := range all {
				x.holds(r)
			}
		}},
		{"put: what the caller does to a record afterwards is its own, and what it is given too", func(x *X) {
			no := false
			r := cube.Record{ID: cube.NewSandboxID(), Metadata: map[string]string{"a": "b"}, AllowInternet: &no, Network: json.RawMessage(`{"a":1}`), End: &cube.Death{Detail: "d"}}
			p := cube.Plan{ID: cube.NewPlanID(), Made: []cube.SandboxID{"a"}}
			x.apply(cube.Batch{Sandboxes: []cube.Record{r}, Plans: []cube.Plan{p}})
			r.Metadata["a"], *r.AllowInternet, r.Network[2], r.End.Detail, p.Made[0] = "changed", true, 'x', "changed", "changed"
			for range 2 {
				got := x.all()
				plans, err := x.s.Plans(x.ctx)
				if err != nil || len(got) != 1 || len(plans) != 1 {
					x.Fatalf("got %+v, %+v (%v), want one of each", got, plans, err)
				}
				g := got[0]
				if g.Metadata["a"] != "b" || *g.AllowInternet || string(g.Network) != `{"a":1}` || g.End.Detail != "d" || plans[0].Made[0] != "a" {
					x.Errorf("got %+v, %+v: the store has what its caller has", g, plans)
				}
				g.Metadata["a"], *g.AllowInternet, g.Network[2], g.End.Detail, plans[0].Made[0] = "changed", true, 'x', "changed", "changed"
			}
		}},
		{"put: the caller's record is left alone", func(x *X) {
			for range rounds {
				r := x.gen.record()
				before := fmt.Sprintf("%+v %+v", r, r.End)
				x.put(r)
				if after := fmt.Sprintf("%+v %+v", r, r.End); after != before {
					x.Fatalf("got  %s\nwant %s", after, before)
				}
			}
		}},
		{"put: many at the same time", func(x *X) { x.manyAtOnce(8, 40) }},
		{"get: an unknown id is not found", func(x *X) {
			for _, id := range []cube.SandboxID{cube.NewSandboxID(), "", "'"} {
				_, err := x.s.Sandbox(x.ctx, id)
				x.wantError(err, cube.ErrNotFound, fmt.Sprintf("get %q", id))
			}
		}},
	}
}

// manyAtOnce has writers put families, whose members always change together, while
// readers look: nobody ever sees a part of one, or one that goes back in time.
func (x *X) manyAtOnce(writers, n int) {
	var families [][]cube.Record
	for w := range writers {
		var family []cube.Record
		for range 3 {
			r := x.gen.record()
			r.Alias = fmt.Sprint(w)
			r.Generation = 0
			family = append(family, r)
		}
		x.put(family...)
		families = append(families, family)
	}
	stop := make(chan struct{})
	var reading, writing sync.WaitGroup
	for range 2 {
		reading.Go(func() { x.watch(stop) })
	}
	for _, family := range families {
		writing.Go(func() {
			for range n {
				for i := range family {
					family[i].Generation++
				}
				if err := x.s.Apply(x.ctx, cube.Batch{Sandboxes: family}); err != nil {
					x.Errorf("put: %v", err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	for _, family := range families {
		for _, r := range family {
			x.holds(r)
		}
	}
}

// watch lists until stop, and once after it.
func (x *X) watch(stop <-chan struct{}) {
	seen := map[string]cube.Generation{}
	for last := false; ; {
		rs, err := x.s.Sandboxes(x.ctx)
		if err != nil {
			x.Errorf("list: %v", err)
			return
		}
		now := map[string]cube.Generation{}
		for _, r := range rs {
			if gen, ok := now[r.Alias]; ok && gen != r.Generation {
				x.Errorf("a part of what is put together is seen: generations %d and %d", gen, r.Generation)
			}
			if r.Generation < seen[r.Alias] {
				x.Errorf("generation %d is seen after %d", r.Generation, seen[r.Alias])
			}
			now[r.Alias] = r.Generation
		}
		seen = now
		if last {
			return
		}
		select {
		case <-stop:
			last = true
		default:
		}
	}
}

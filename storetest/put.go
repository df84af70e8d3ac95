package storetest

import (
	"encoding/json"
	"fmt"
	"sync"

	cube "cubesandbox"
)

// rounds is how many random values are tried.
const rounds = 300

func puts() []promise {
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
		{"put: of several none is stored when one cannot be", func(x *X) {
			old, other := x.gen.record(), x.gen.record()
			x.put(old)
			changed, bad := x.gen.record(), x.gen.record()
			changed.ID = old.ID
			bad.Network = json.RawMessage(`{`) // is no JSON
			if err := x.s.PutSandboxes(x.ctx, changed, other, bad); err == nil {
				x.Error("got no error")
			}
			x.holds(old)
			if got := x.all(); len(got) != 1 {
				x.Errorf("got %d records, want the one from before", len(got))
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
		{"delete: is idempotent, and what is deleted is not found", func(x *X) {
			a, b := x.gen.record(), x.gen.record()
			x.put(a, b)
			for range 2 {
				x.noError(x.s.DeleteSandbox(x.ctx, a.ID), "delete")
				_, err := x.s.Sandbox(x.ctx, a.ID)
				x.wantError(err, cube.ErrNotFound, "get")
				x.holds(b)
			}
			x.reopen()
			_, err := x.s.Sandbox(x.ctx, a.ID)
			x.wantError(err, cube.ErrNotFound, "get after reopening")
			x.noError(x.s.DeleteSandbox(x.ctx, cube.NewSandboxID()), "delete what never was")
			x.put(a)
			x.holds(a)
		}},
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
				if err := x.s.PutSandboxes(x.ctx, family...); err != nil {
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

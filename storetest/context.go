package storetest

import (
	"context"
	"errors"
	"time"

	cube "cubesandbox"
)

func contexts() []promise {
	return []promise{
		{"context: one that has ended changes nothing and is the error", func(x *X) {
			old, snap := x.gen.record(), x.gen.snapshot()
			x.put(old)
			x.noError(x.s.PutSnapshot(x.ctx, snap), "put")
			ended, cancel := context.WithCancel(x.ctx)
			cancel()
			changed, other := x.gen.record(), x.gen.snapshot()
			changed.ID = old.ID
			_, get := x.s.Sandbox(ended, old.ID)
			_, list := x.s.Sandboxes(ended)
			_, snaps := x.s.Snapshots(ended)
			for what, err := range map[string]error{
				"put": x.s.PutSandboxes(ended, changed), "put two": x.s.PutSandboxes(ended, changed, x.gen.record()), "get": get, "list": list,
				"delete": x.s.DeleteSandbox(ended, old.ID), "put snapshot": x.s.PutSnapshot(ended, other),
				"list snapshots": snaps, "delete snapshot": x.s.DeleteSnapshot(ended, snap.ID),
			} {
				x.wantError(err, context.Canceled, what)
			}
			x.holds(old)
			x.listsSnapshots([]cube.Snapshot{snap})
		}},
		{"context: one that ends on the way leaves records as they were or as they were to be", func(x *X) { x.endsOnTheWay() }},
	}
}

// endsOnTheWay puts a family over and over, each time with a deadline anywhere
// within the time that a put takes. It goes on until both ends were seen often.
func (x *X) endsOnTheWay() {
	family := []cube.Record{x.gen.record(), x.gen.record(), x.gen.record()}
	begin := time.Now()
	for gen := range cube.Generation(10) {
		x.put(next(family, gen)...)
	}
	took := time.Since(begin) / 10
	now := cube.Generation(9)
	for gen, done, ended := cube.Generation(10), 0, 0; done < 20 || ended < 20; gen++ {
		if gen > 20_000 {
			x.Fatalf("of %d puts %d ended by their context and %d did not: nothing is shown", gen, ended, done)
		}
		ctx, cancel := context.WithTimeout(x.ctx, time.Duration(x.gen.Int64N(int64(3*took))))
		err := x.s.PutSandboxes(ctx, next(family, gen)...)
		cancel()
		was := now
		now = x.generation(len(family))
		switch {
		case err == nil && now != gen:
			x.Fatalf("put %d returned nil, and %d is there", gen, now)
		case err == nil:
			done++
		case !errors.Is(err, context.DeadlineExceeded):
			x.Fatalf("put %d: got %v, want the context's error", gen, err)
		case now != was && now != gen:
			x.Fatalf("put %d was ended over %d, and %d is there", gen, was, now)
		default:
			ended++
		}
	}
}

// next gives all of a family a generation.
func next(family []cube.Record, gen cube.Generation) []cube.Record {
	for i := range family {
		family[i].Generation = gen
	}
	return family
}

// generation is the one that all of the n records have.
func (x *X) generation(n int) cube.Generation {
	x.Helper()
	rs := x.all()
	if len(rs) != n {
		x.Fatalf("got %d records, want %d", len(rs), n)
	}
	for _, r := range rs {
		if r.Generation != rs[0].Generation {
			x.Fatalf("generations %d and %d: a part was stored", r.Generation, rs[0].Generation)
		}
	}
	return rs[0].Generation
}

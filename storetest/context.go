package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	cube "cubesandbox"
)

func contexts() []promise {
	return []promise{
		{"context: one that has ended changes nothing and is the error", func(x *X) {
			m := newModel()
			for range 5 {
				b := x.gen.batch(m, 4)
				x.apply(b)
				m.apply(b)
			}
			old := x.gen.record()
			x.put(old)
			m.apply(cube.Batch{Sandboxes: []cube.Record{old}})
			ended, cancel := context.WithCancel(x.ctx)
			cancel()
			changed := x.gen.record()
			changed.ID = old.ID
			_, get := x.s.Sandbox(ended, old.ID)
			_, sandboxes := x.s.Sandboxes(ended)
			_, snapshots := x.s.Snapshots(ended)
			_, plans := x.s.Plans(ended)
			_, answers := x.s.Answers(ended)
			for what, err := range map[string]error{
				"put": x.s.Apply(ended, cube.Batch{Sandboxes: []cube.Record{changed}}), "apply": x.s.Apply(ended, x.gen.batch(m, 4)),
				"drop": x.s.Apply(ended, cube.Batch{DropSandboxes: []cube.SandboxID{old.ID}}),
				"get":  get, "sandboxes": sandboxes, "snapshots": snapshots, "plans": plans, "answers": answers, "sync": x.s.Sync(ended),
			} {
				x.wantError(err, context.Canceled, what)
			}
			x.is(m)
		}},
		{"context: one that ends on the way leaves records as they were or as they were to be", func(x *X) {
			var seen ends
			var writing sync.WaitGroup
			for range 4 {
				family := []cube.Record{x.gen.record(), x.gen.record(), x.gen.record()}
				gen := generator{rand.New(rand.NewPCG(x.gen.Uint64(), 0))}
				writing.Go(func() { x.endsOnTheWay(family, gen, &seen) })
			}
			writing.Wait()
			if !seen.enough() {
				x.Errorf("%d puts ended by their context and %d did not: nothing is shown", seen.ended.Load(), seen.done.Load())
			}
		}},
	}
}

// ends are how puts ended.
type ends struct{ done, ended atomic.Int64 }

func (e *ends) enough() bool { return e.done.Load() >= 50 && e.ended.Load() >= 50 }

// endsOnTheWay puts a family over and over, each time with a deadline anywhere within
// the time that a put takes while others put too. It goes on until both ends were
// seen often.
func (x *X) endsOnTheWay(family []cube.Record, random generator, seen *ends) {
	begin := time.Now()
	now := cube.Generation(0)
	for ; now < 10; now++ {
		if err := x.s.Apply(x.ctx, cube.Batch{Sandboxes: next(family, now+1)}); err != nil {
			x.Errorf("put: %v", err)
			return
		}
	}
	took := time.Since(begin) / 10
	for gen := now + 1; gen < 20_000 && !seen.enough() && !x.Failed(); gen++ {
		ctx, cancel := context.WithTimeout(x.ctx, time.Duration(random.Int64N(int64(3*took))))
		err := x.s.Apply(ctx, cube.Batch{Sandboxes: next(family, gen)})
		cancel()
		was := now
		now = x.generation(family)
		switch {
		case err == nil && now != gen:
			x.Errorf("put %d returned nil, and %d is there", gen, now)
		case err == nil:
			seen.done.Add(1)
		case !errors.Is(err, context.DeadlineExceeded):
			x.Errorf("put %d: got %v, want the context's error", gen, err)
		case now != was && now != gen:
			x.Errorf("put %d was ended over %d, and %d is there", gen, was, now)
		default:
			seen.ended.Add(1)
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

// generation is the one that all of a family have.
func (x *X) generation(family []cube.Record) (gen cube.Generation) {
	x.Helper()
	for i, f := range family {
		r, err := x.s.Sandbox(x.ctx, f.ID)
		switch {
		case err != nil:
			x.Errorf("get: %v", err)
		case i > 0 && r.Generation != gen:
			x.Errorf("generations %d and %d: a part was stored", r.Generation, gen)
		}
		gen = r.Generation
	}
	return gen
}

package storetest

import (
	"sync"

	cube "cubesandbox"
)

func syncs() []promise {
	return []promise{
		{"sync: changes nothing, with and without something to do", func(x *X) {
			m := newModel()
			for range 5 {
				for range 2 {
					x.noError(x.s.Sync(x.ctx), "sync")
					x.is(m)
				}
				b := x.gen.batch(m, 4)
				x.apply(b)
				m.apply(b)
			}
			x.noError(x.s.Sync(x.ctx), "sync")
			x.reopen()
			x.noError(x.s.Sync(x.ctx), "sync after reopening")
			x.is(m)
		}},
		{"sync: many at the same time, while others write and look", func(x *X) {
			stop := make(chan struct{})
			var looking, working sync.WaitGroup
			looking.Go(func() { x.watch(stop) })
			for range 8 {
				r := x.gen.record()
				r.Alias = string(r.ID)
				working.Go(func() {
					for r.Generation = range 25 {
						if err := x.s.Apply(x.ctx, cube.Batch{Sandboxes: []cube.Record{r}}); err != nil {
							x.Errorf("apply: %v", err)
						}
						if err := x.s.Sync(x.ctx); err != nil {
							x.Errorf("sync: %v", err)
						}
					}
				})
			}
			working.Wait()
			close(stop)
			looking.Wait()
			if got := x.all(); len(got) != 8 {
				x.Errorf("got %d records, want 8", len(got))
			}
		}},
	}
}

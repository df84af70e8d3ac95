package storetest

import (
	"cmp"
	"slices"
	"time"

	cube "cubesandbox"
)

func lists() []promise {
	return []promise{
		{"sandboxes: all are listed, ended ones too, by start to the nanosecond, then by id", func(x *X) {
			if got := x.all(); len(got) != 0 {
				x.Fatalf("a new store has %d records", len(got))
			}
			var want []cube.Record
			start := time.Now()
			for range 200 {
				r := x.gen.record()
				r.StartedAt = x.near(start)
				r.Phase = []cube.Phase{cube.PhaseRunning, cube.PhaseEnded}[x.gen.IntN(2)]
				want = append(want, r)
			}
			want[0].StartedAt = time.Time{}
			x.put(want...)
			slices.SortFunc(want, func(a, b cube.Record) int {
				return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
			})
			for range 2 {
				got := x.all()
				if len(got) != len(want) {
					x.Fatalf("got %d records, want %d", len(got), len(want))
				}
				for i := range want {
					x.same(got[i], want[i])
				}
				x.reopen()
			}
		}},
		{"snapshots: all are listed as they were put, by creation, then by id", func(x *X) {
			var want []cube.Snapshot
			created := time.Now()
			for range 100 {
				s := x.gen.snapshot()
				x.noError(x.s.PutSnapshot(x.ctx, s), "put")
				changed := x.gen.snapshot()
				changed.ID, changed.CreatedAt = s.ID, x.near(created)
				x.noError(x.s.PutSnapshot(x.ctx, changed), "replace")
				want = append(want, changed)
			}
			slices.SortFunc(want, func(a, b cube.Snapshot) int {
				return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
			})
			x.listsSnapshots(want)
			x.reopen()
			x.listsSnapshots(want)
			for range 2 {
				x.noError(x.s.DeleteSnapshot(x.ctx, want[0].ID), "delete")
			}
			x.listsSnapshots(want[1:])
		}},
		{"snapshots: one that has a sandbox's records deleted stays", func(x *X) {
			r, s := x.gen.record(), x.gen.snapshot()
			s.Source = r.ID
			x.put(r)
			x.noError(x.s.PutSnapshot(x.ctx, s), "put")
			x.noError(x.s.DeleteSandbox(x.ctx, r.ID), "delete")
			x.listsSnapshots([]cube.Snapshot{s})
		}},
	}
}

// near is one of few moments, in any zone, so that many are the same.
func (x *X) near(t time.Time) time.Time {
	zone := time.FixedZone("", x.gen.IntN(12)*3600)
	return t.Add(time.Duration(x.gen.IntN(20))).In(zone)
}

func (x *X) listsSnapshots(want []cube.Snapshot) {
	x.Helper()
	got, err := x.s.Snapshots(x.ctx)
	x.noError(err, "list snapshots")
	if len(got) != len(want) {
		x.Fatalf("got %d snapshots, want %d", len(got), len(want))
	}
	for i := range want {
		x.same(got[i], want[i])
	}
}

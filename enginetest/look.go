package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	cube "cubesandbox"
)

func killPromises() []promise {
	return []promise{
		{"kill: everything ends and the id is unknown afterwards", func(x *X) {
			s := x.create()
			c := x.connect(s.ID)
			x.noError(x.e.Kill(x.ctx, s.ID), "kill")
			c.isReset()
			x.gone(s.ID)
			x.wantError(x.e.Kill(x.ctx, s.ID), cube.ErrNotFound, "kill again")
		}},
		{"kill: waits for the verb at work and then wins", func(x *X) {
			s := x.create()
			x.h.Slow(x.T, x.e, s.ID)
			img := cube.NewSnapshotID()
			saved := make(chan error, 1)
			var at sync.WaitGroup
			at.Add(1)
			go func() { at.Done(); saved <- errOf(x.e.Save(x.ctx, s.ID, img)) }()
			at.Wait()
			x.noError(x.e.Kill(x.ctx, s.ID), "kill")
			x.gone(s.ID)
			// Kill may have come first; then the save found nothing, or a sandbox
			// that was just ending. What must not be: half a save.
			err := <-saved
			if err != nil && !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrConflict) && !errors.Is(err, cube.ErrDead) {
				x.Errorf("save: %v", err)
			}
			x.published(img, err == nil)
		}},
		{"kill: two at once both end well", func(x *X) {
			s := x.create()
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- x.e.Kill(x.ctx, s.ID) }()
			}
			ended := 0
			for range 2 {
				if err := <-errs; err == nil {
					ended++
				} else if !errors.Is(err, cube.ErrNotFound) {
					x.Errorf("kill: %v", err)
				}
			}
			if ended == 0 {
				x.Error("of two kills none returned nil")
			}
			x.gone(s.ID)
		}},
		{"kill: a dead sandbox is forgotten", func(x *X) {
			s := x.create()
			x.die(s.ID)
			x.noError(x.e.Kill(x.ctx, s.ID), "kill")
			x.wantError(x.e.Kill(x.ctx, s.ID), cube.ErrNotFound, "kill again")
		}},
	}
}

func lookPromises() []promise {
	return []promise{
		{"sandboxes: all are listed, ordered by id, dead ones included", func(x *X) {
			var want []cube.SandboxID
			for range 4 {
				want = append(want, x.create().ID)
			}
			x.die(want[2])
			dead := want[2]
			slices.Sort(want)
			if got := x.list(); !slices.Equal(got, want) {
				x.Errorf("got %v, want %v", got, want)
			}
			s, err := x.e.Sandbox(x.ctx, dead)
			x.noError(err, "sandbox")
			if s.State != cube.StateDead {
				x.Errorf("got state %s, want dead", s.State)
			}
		}},
		{"ask: the agent of a new sandbox and of one that was rolled back is well", func(x *X) {
			s := x.create()
			x.noError(x.e.Ask(x.ctx, s.ID), "ask the agent of a new one")
			img, err := x.e.Save(x.ctx, s.ID, cube.NewSnapshotID())
			x.noError(err, "save")
			_, err = x.e.Rollback(x.ctx, s.ID, img.ID)
			x.noError(err, "rollback")
			x.noError(x.e.Ask(x.ctx, s.ID), "ask the agent after a rollback")
		}},
		{"usage: measures memory, and more of it when more is used", func(x *X) {
			s := x.create()
			a, err := x.e.Usage(x.ctx, s.ID)
			x.noError(err, "usage")
			if a.HostMemory <= 0 || a.GuestMemory < 0 || a.HostMemory < a.GuestMemory || a.CPU < 0 {
				x.Errorf("got %+v", a)
			}
			x.put(s.ID, "big", string(make([]byte, 4<<20)))
			b, err := x.e.Usage(x.ctx, s.ID)
			x.noError(err, "usage")
			if b.GuestMemory < a.GuestMemory+3<<20 {
				x.Errorf("after 4 MiB more: got %d bytes of guest memory, before %d", b.GuestMemory, a.GuestMemory)
			}
		}},
	}
}

func dialPromises() []promise {
	return []promise{
		{"dial: reaches a server on 127.0.0.1, in the current generation and by its number", func(x *X) {
			s := x.create()
			x.connect(s.ID)
			c, err := x.e.Dial(x.ctx, s.ID, 1, x.h.EchoPort)
			x.noError(err, "dial generation 1")
			c.Close()
		}},
		{"dial: a closed port is refused", func(x *X) {
			s := x.create()
			_, err := x.e.Dial(x.ctx, s.ID, 0, x.h.EchoPort+1)
			x.wantError(err, cube.ErrRefused, "dial")
		}},
		{"dial: a generation that is not there is not found", func(x *X) {
			s := x.create()
			_, err := x.e.Dial(x.ctx, s.ID, 2, x.h.EchoPort)
			x.wantError(err, cube.ErrNotFound, "dial")
		}},
		{"dial: connections are reset when the life ends", func(x *X) {
			s := x.create()
			c := x.connect(s.ID)
			x.die(s.ID)
			c.isReset()
		}},
	}
}

func eventPromises() []promise {
	return []promise{
		{"events: a death is told with its reason, to every reader", func(x *X) {
			s := x.create()
			ctx, cancel := context.WithCancel(x.ctx)
			defer cancel()
			other := x.e.Events(ctx)
			ev := x.die(s.ID)
			if ev.Generation != 1 || ev.Death == nil || ev.Death.Reason == "" || ev.At.IsZero() {
				x.Errorf("got %+v", ev)
			}
			got := <-other
			if got.Kind != cube.EventDied || got.Sandbox != s.ID {
				x.Errorf("the other reader got %+v", got)
			}
		}},
		{"events: the channel is closed when the context ends", func(x *X) {
			ctx, cancel := context.WithCancel(x.ctx)
			ch := x.e.Events(ctx)
			cancel()
			for range ch {
				x.Error("got an event, want the end")
			}
		}},
		{"events: what was asked for is not told", func(x *X) {
			ctx, cancel := context.WithCancel(x.ctx)
			ch := x.e.Events(ctx)
			s := x.create()
			img := x.save(s.ID)
			_, err := x.e.Rollback(x.ctx, s.ID, img)
			x.noError(err, "rollback")
			x.noError(x.e.Kill(x.ctx, s.ID), "kill")
			cancel()
			for ev := range ch {
				x.Errorf("got %+v", ev)
			}
		}},
	}
}

func poolPromises() []promise {
	return []promise{
		{"pools: members are made ready, are no sandboxes, and are claimed by create", func(x *X) {
			began := time.Now()
			x.noError(x.e.SetPools(x.ctx, cube.Pools{Booted: 1, Restored: map[cube.ImageID]int{x.h.Image: 2}}), "set pools")
			if d := time.Since(began); d > 100*time.Millisecond {
				x.Errorf("set pools took %v, want it to return at once", d)
			}
			x.ready(2)
			if got := x.list(); len(got) != 0 {
				x.Errorf("sandboxes: got %v, want none", got)
			}
			for i := range 3 {
				who := cube.Identity{Hostname: string(rune('a' + i))}
				s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Identity: who})
				x.noError(err, "create")
				x.isTold(s.ID, who)
				x.holds(s.ID, "k", "")
				x.put(s.ID, "k", who.Hostname)
			}
			x.ready(2)
		}},
		{"pools: a smaller pool ends members", func(x *X) {
			x.noError(x.e.SetPools(x.ctx, cube.Pools{Restored: map[cube.ImageID]int{x.h.Image: 2}}), "set pools")
			x.ready(2)
			x.noError(x.e.SetPools(x.ctx, cube.Pools{}), "empty pools")
			x.ready(0)
		}},
		{"pools: of an image that is not there are refused", func(x *X) {
			err := x.e.SetPools(x.ctx, cube.Pools{Restored: map[cube.ImageID]int{cube.NewSnapshotID(): 1}})
			if err == nil { // then it is found out in the background
				err = x.e.PoolsReady(x.ctx)
			}
			x.wantError(err, cube.ErrNotFound, "set pools, then ready")
		}},
		{"pools: ready says why a pool cannot be filled", func(x *X) {
			undo, ok := x.fault(StartFails, x.h.Image)
			if !ok {
				return
			}
			defer undo()
			x.noError(x.e.SetPools(x.ctx, cube.Pools{Restored: map[cube.ImageID]int{x.h.Image: 1}}), "set pools")
			if err := x.e.PoolsReady(x.ctx); err == nil || x.ctx.Err() != nil {
				x.Errorf("got %v, want the reason", err)
			}
		}},
	}
}

// ready waits for the pools and counts the restored members.
func (x *X) ready(want int) {
	x.Helper()
	x.noError(x.e.PoolsReady(x.ctx), "pools ready")
	got, err := x.h.PoolMembers(x.ctx)
	x.noError(err, "count pool members")
	if got != want {
		x.Errorf("got %d members, want %d", got, want)
	}
}

func closePromises() []promise {
	return []promise{
		{"close: sandboxes run on and are found again, members of pools are ended", func(x *X) {
			s := x.create()
			who := cube.Identity{Hostname: "stayer", AccessToken: "t"}
			named, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Identity: who, Generation: 3})
			x.noError(err, "create")
			dead := x.create()
			x.die(dead.ID)
			x.put(s.ID, "k", "v")
			img := x.save(s.ID)
			x.noError(x.e.SetPools(x.ctx, cube.Pools{Restored: map[cube.ImageID]int{x.h.Image: 1}}), "set pools")
			x.ready(1)
			want := x.list()

			x.reopen()
			if got := x.list(); !slices.Equal(got, want) {
				x.Errorf("sandboxes: got %v, want %v", got, want)
			}
			x.ready(0)
			x.holds(s.ID, "k", "v")
			x.runs(named.ID, 3)
			x.isTold(named.ID, who)
			_, err = x.e.Save(x.ctx, dead.ID, cube.NewSnapshotID())
			x.wantError(err, cube.ErrDead, "save of the dead one")
			x.put(s.ID, "k", "later")
			_, err = x.e.Rollback(x.ctx, s.ID, img)
			x.noError(err, "rollback with the new engine")
			x.runs(s.ID, 2)
			x.holds(s.ID, "k", "v")
			_, err = x.e.Rollback(x.ctx, named.ID, img)
			x.noError(err, "rollback with the new engine")
			x.isTold(named.ID, who)
		}},
		{"close: events end", func(x *X) {
			ch := x.e.Events(x.ctx)
			x.reopen()
			for range ch {
				x.Error("got an event, want the end")
			}
		}},
	}
}

// reopen closes the engine and opens another.
func (x *X) reopen() {
	x.Helper()
	x.noError(x.e.Close(), "close")
	e, err := x.h.Open(x.ctx)
	x.noError(err, "open again")
	x.e = e
}

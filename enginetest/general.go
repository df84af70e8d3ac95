package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	cube "cubesandbox"
)

func sortedFaults() []Fault { return slices.Sorted(maps.Keys(imageFaults)) }

// verb is one that works on a sandbox which is there.
type verb struct {
	name string
	do   func(ctx context.Context, x *X, id cube.SandboxID, img cube.ImageID) error
}

// verbs is every method with a sandbox id, Kill and Sandbox excepted. img is an
// image that is there.
func verbs() []verb {
	return []verb{
		{"save", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error {
			_, err := x.e.Save(ctx, id, cube.NewSnapshotID())
			return err
		}},
		{"pause", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error {
			_, err := x.e.Pause(ctx, id, cube.NewSnapshotID(), cube.Pausing{})
			return err
		}},
		{"rollback", func(ctx context.Context, x *X, id cube.SandboxID, img cube.ImageID) error {
			_, err := x.e.Rollback(ctx, id, img)
			return err
		}},
		{"clone", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error {
			_, err := x.e.Clone(ctx, id, []cube.CreateSpec{{ID: cube.NewSandboxID()}}, 0)
			return err
		}},
	}
}

func looks() []verb {
	return []verb{
		{"usage", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error {
			_, err := x.e.Usage(ctx, id)
			return err
		}},
		{"ask", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error { return x.e.Ask(ctx, id) }},
		{"dial", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error {
			c, err := x.e.Dial(ctx, id, 0, x.h.EchoPort)
			if err == nil {
				c.Close()
			}
			return err
		}},
	}
}

func general() []promise {
	return []promise{
		{"a malformed sandbox id is invalid and an unknown one is not found", func(x *X) {
			all := append(append(verbs(), looks()...),
				verb{"kill", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error { return x.e.Kill(ctx, id) }},
				verb{"sandbox", func(ctx context.Context, x *X, id cube.SandboxID, _ cube.ImageID) error {
					_, err := x.e.Sandbox(ctx, id)
					return err
				}})
			for _, v := range all {
				for _, bad := range []cube.SandboxID{"", "x", "../../../../../../../../etc/pass", cube.SandboxID(cube.NewSnapshotID())} {
					x.wantError(v.do(x.ctx, x, bad, x.h.Image), cube.ErrInvalid, fmt.Sprintf("%s of %q", v.name, bad))
				}
				x.wantError(v.do(x.ctx, x, cube.NewSandboxID(), x.h.Image), cube.ErrNotFound, v.name+" of an unknown sandbox")
			}
		}},
		{"a malformed image id is invalid and an unknown one is not found", func(x *X) {
			s := x.create()
			for _, bad := range []cube.ImageID{"", "tpl-", "snap-../../../../../../x", cube.ImageID(s.ID)} {
				_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: bad})
				x.wantError(err, cube.ErrInvalid, fmt.Sprintf("create from %q", bad))
				_, err = x.e.Rollback(x.ctx, s.ID, bad)
				x.wantError(err, cube.ErrInvalid, fmt.Sprintf("rollback to %q", bad))
				_, err = x.e.Save(x.ctx, s.ID, bad)
				x.wantError(err, cube.ErrInvalid, fmt.Sprintf("save as %q", bad))
				_, err = x.e.Pause(x.ctx, s.ID, bad, cube.Pausing{})
				x.wantError(err, cube.ErrInvalid, fmt.Sprintf("pause as %q", bad))
			}
			_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: cube.NewSnapshotID()})
			x.wantError(err, cube.ErrNotFound, "create from an unknown image")
			_, err = x.e.Resume(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: cube.NewSnapshotID(), Generation: 2})
			x.wantError(err, cube.ErrNotFound, "resume from an unknown image")
			_, err = x.e.Rollback(x.ctx, s.ID, cube.NewSnapshotID())
			x.wantError(err, cube.ErrNotFound, "rollback to an unknown image")
			x.runs(s.ID, 1)
			x.holds(s.ID, "k", "")
		}},
		{"two verbs on one sandbox never overlap and the second gets a conflict at once", verbsNeverOverlap},
		{"verbs on different sandboxes run at the same time", differentSandboxes},
		{"a context that has ended fails a verb and changes nothing", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "v")
			img, before := x.save(s.ID), x.images()
			c := x.connect(s.ID)
			ended, cancel := context.WithCancel(x.ctx)
			cancel()
			for _, v := range verbs() {
				x.wantError(v.do(ended, x, s.ID, img), context.Canceled, v.name)
			}
			id := cube.NewSandboxID()
			_, err := x.e.Create(ended, cube.CreateSpec{ID: id, Image: img})
			x.wantError(err, context.Canceled, "create")
			x.gone(id)
			if got := x.images(); !slices.Equal(got, before) {
				x.Errorf("images: got %v, want %v", got, before)
			}
			x.runs(s.ID, 1)
			c.works()
		}},
		{"a verb that is cancelled is either done or undone", cancelledVerbs},
		{"a verb on a dead sandbox fails with dead and only kill and sandbox work", func(x *X) {
			s := x.create()
			img := x.save(s.ID)
			x.die(s.ID)
			for _, v := range append(verbs(), looks()...) {
				x.wantError(v.do(x.ctx, x, s.ID, img), cube.ErrDead, v.name)
			}
			got, err := x.e.Sandbox(x.ctx, s.ID)
			x.noError(err, "sandbox")
			if got.State != cube.StateDead || got.Death == nil || got.Death.Reason == "" || got.Death.At.IsZero() {
				x.Errorf("got state %s, death %+v; want dead, with a reason and a time", got.State, got.Death)
			}
			x.noError(x.e.Kill(x.ctx, s.ID), "kill")
			x.gone(s.ID)
		}},
	}
}

func verbsNeverOverlap(x *X) {
	s := x.create()
	x.h.Slow(x.T, x.e, s.ID)
	img := x.save(s.ID)
	c := x.connect(s.ID)
	conflicts := 0
	for try := 0; conflicts == 0 && try < 10; try++ {
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		start := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				<-start
				began := time.Now()
				_, err := x.e.Save(x.ctx, s.ID, cube.NewSnapshotID())
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done++
				case errors.Is(err, cube.ErrConflict):
					conflicts++
					if d := time.Since(began); d > 500*time.Millisecond {
						x.Errorf("the conflict took %v, want it at once", d)
					}
				default:
					x.Errorf("save: %v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		if done == 0 {
			x.Error("of three saves at once none succeeded")
		}
	}
	if conflicts == 0 {
		x.Error("ten times three saves at once and no conflict")
	}
	c.works()
	_, err := x.e.Rollback(x.ctx, s.ID, img)
	x.noError(err, "rollback after the conflicts")
	x.runs(s.ID, 2)
}

func differentSandboxes(x *X) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image})
			if err != nil {
				x.Errorf("create %d: %v", i, err)
				return
			}
			want := fmt.Sprint(i)
			img := cube.NewSnapshotID()
			for _, err := range []error{
				x.h.Put(x.ctx, x.e, s.ID, "k", want),
				errOf(x.e.Save(x.ctx, s.ID, img)),
				x.h.Put(x.ctx, x.e, s.ID, "k", "other"),
				errOf(x.e.Rollback(x.ctx, s.ID, img)),
			} {
				if err != nil {
					x.Errorf("sandbox %d: %v", i, err)
				}
			}
			if got, err := x.h.Get(x.ctx, x.e, s.ID, "k"); err != nil || got != want {
				x.Errorf("sandbox %d: got %q, %v; want %q", i, got, err, want)
			}
		})
	}
	wg.Wait()
}

func errOf[T any](_ T, err error) error { return err }

// die ends a sandbox from outside and waits until the engine says so.
func (x *X) die(id cube.SandboxID) cube.Event {
	x.Helper()
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	events := x.e.Events(ctx)
	x.noError(x.h.Crash(x.ctx, x.e, id), "crash")
	for ev := range events {
		if ev.Kind == cube.EventDied && ev.Sandbox == id {
			return ev
		}
	}
	x.Fatalf("no event says that %s died", id)
	return cube.Event{}
}

// cancelledVerbs cancels at moments all over a verb's length.
func cancelledVerbs(x *X) {
	for _, v := range verbs() {
		for _, after := range []time.Duration{0, 2, 5, 10, 20, 40, 80} {
			s := x.create()
			x.put(s.ID, "k", "saved")
			img := x.save(s.ID)
			x.put(s.ID, "k", "now")
			before := x.images()
			list := x.list()
			ctx, cancel := context.WithTimeout(x.ctx, after*time.Millisecond)
			err := v.do(ctx, x, s.ID, img)
			cancel()
			if err == nil {
				x.forget(s.ID)
				continue // done: what that means is shown elsewhere
			}
			x.wantError(err, context.DeadlineExceeded, fmt.Sprintf("%s cancelled after %d ms", v.name, after))
			x.runs(s.ID, 1)
			x.holds(s.ID, "k", "now")
			if got := x.images(); !slices.Equal(got, before) {
				x.Errorf("%s cancelled after %d ms left images: got %v, want %v", v.name, after, got, before)
			}
			if got := x.list(); !slices.Equal(got, list) {
				x.Errorf("%s cancelled after %d ms left sandboxes: got %v, want %v", v.name, after, got, list)
			}
			x.forget(s.ID)
		}
	}
}

// forget ends a sandbox that may be paused.
func (x *X) forget(id cube.SandboxID) {
	x.Helper()
	if err := x.e.Kill(x.ctx, id); err != nil && !errors.Is(err, cube.ErrNotFound) {
		x.Errorf("kill: %v", err)
	}
}

func (x *X) list() []cube.SandboxID {
	x.Helper()
	all, err := x.e.Sandboxes(x.ctx)
	x.noError(err, "list")
	var ids []cube.SandboxID
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

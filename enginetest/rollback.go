package enginetest

import (
	"errors"
	"slices"
	"time"

	cube "cubesandbox"
)

func rollbackPromises() []promise {
	return []promise{
		{"rollback: same id and identity, one generation higher, state as in the image", func(x *X) {
			who := cube.Identity{Hostname: "same", Env: map[string]string{"A": "1"}, AccessToken: "secret"}
			s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Identity: who})
			x.noError(err, "create")
			x.put(s.ID, "k", "saved")
			img := x.save(s.ID)
			for gen := cube.Generation(2); gen <= 4; gen++ {
				x.put(s.ID, "k", "later")
				x.put(s.ID, "new", "later")
				got, err := x.e.Rollback(x.ctx, s.ID, img)
				x.noError(err, "rollback")
				if got.ID != s.ID || got.Generation != gen || got.State != cube.StateRunning || got.Image != img || got.Limits != s.Limits {
					x.Errorf("got %+v, want %s running in generation %d from %s with %+v", got, s.ID, gen, img, s.Limits)
				}
				x.runs(s.ID, gen)
				x.holds(s.ID, "k", "saved")
				x.holds(s.ID, "new", "")
				x.isTold(s.ID, who)
			}
		}},
		{"rollback: connections of the old life are reset and its generation is over", func(x *X) {
			s := x.create()
			img := x.save(s.ID)
			c := x.connect(s.ID)
			_, err := x.e.Rollback(x.ctx, s.ID, img)
			x.noError(err, "rollback")
			c.isReset()
			_, err = x.e.Dial(x.ctx, s.ID, 1, x.h.EchoPort)
			x.wantError(err, cube.ErrNotFound, "dial the old generation")
			x.connect(s.ID)
		}},
		{"rollback: to the image of another sandbox", func(x *X) {
			a, b := x.create(), x.create()
			x.put(a.ID, "k", "a")
			x.put(b.ID, "k", "b")
			img := x.save(a.ID)
			_, err := x.e.Rollback(x.ctx, b.ID, img)
			x.noError(err, "rollback")
			x.holds(b.ID, "k", "a")
			x.isTold(b.ID, cube.Identity{Hostname: b.ID.Hostname()})
			x.runs(a.ID, 1)
		}},
		{"rollback: to a bad image fails with the reason and the old life runs on with its connections", func(x *X) {
			x.eachImageFault(func(id cube.SandboxID, bad cube.ImageID, want error) {
				x.put(id, "k", "now")
				c := x.connect(id)
				_, err := x.e.Rollback(x.ctx, id, bad)
				x.wantError(err, want, "rollback")
				x.holds(id, "k", "now")
				c.works()
				x.runs(id, 1)
			})
		}},
		{"rollback: when no life can be started the old one runs on with its connections", func(x *X) {
			x.rollbackFails(StartFails)
		}},
		{"rollback: without memory for the second life it is refused with the figures", func(x *X) {
			if err := x.rollbackFails(OutOfMemory); err != nil {
				x.isRefused(err)
			}
		}},
		{"rollback: no answer of the old life comes after it has returned", func(x *X) {
			s := x.create()
			img := x.save(s.ID)
			c := x.connect(s.ID)
			last := make(chan time.Time, 1)
			go func() {
				var sent time.Time // when the last line was sent that got an answer
				for at := time.Now(); c.say() == nil; at = time.Now() {
					sent = at
				}
				last <- sent
			}()
			_, err := x.e.Rollback(x.ctx, s.ID, img)
			x.noError(err, "rollback")
			returned := time.Now()
			x.holds(s.ID, "k", "")
			if at := <-last; at.After(returned) {
				x.Errorf("the old life answered what was sent %v after rollback had returned", at.Sub(returned))
			}
		}},
	}
}

// rollbackFails checks the promise for failures with a fault that is not the image's.
func (x *X) rollbackFails(f Fault) error {
	x.Helper()
	s := x.create()
	img := x.save(s.ID)
	x.put(s.ID, "k", "now")
	c := x.connect(s.ID)
	undo, ok := x.fault(f, img)
	if !ok {
		return nil
	}
	_, err := x.e.Rollback(x.ctx, s.ID, img)
	undo()
	if err == nil {
		x.Error("rollback: got no error")
	}
	x.holds(s.ID, "k", "now")
	c.works()
	x.runs(s.ID, 1)
	_, rerr := x.e.Rollback(x.ctx, s.ID, img)
	x.noError(rerr, "rollback afterwards")
	x.runs(s.ID, 2)
	return err
}

func clonePromises() []promise {
	specs := func(n int) (out []cube.CreateSpec) {
		for range n {
			out = append(out, cube.CreateSpec{ID: cube.NewSandboxID()})
		}
		return out
	}
	return []promise{
		{"clone: all are running in the order of specs, with one state, and the source runs on", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "one instant")
			c := x.connect(s.ID)
			want := specs(3)
			want[1].Image = cube.NewSnapshotID() // ignored
			want[2].Identity.Hostname = "third"
			before := x.images()
			got, err := x.e.Clone(x.ctx, s.ID, want, 0)
			x.noError(err, "clone")
			if len(got) != len(want) {
				x.Fatalf("got %d clones, want %d", len(got), len(want))
			}
			for i := range want {
				if got[i].ID != want[i].ID || got[i].State != cube.StateRunning {
					x.Errorf("clone %d: got %+v, want %s running", i, got[i], want[i].ID)
				}
				x.runs(want[i].ID, 1)
				x.holds(want[i].ID, "k", "one instant")
			}
			x.isTold(want[0].ID, cube.Identity{Hostname: want[0].ID.Hostname()})
			x.isTold(want[2].ID, cube.Identity{Hostname: "third"})
			x.runs(s.ID, 1)
			c.works()
			if got := x.images(); !slices.Equal(got, before) {
				x.Errorf("images: got %v, want %v: nobody asked for one", got, before)
			}
		}},
		{"clone: clones and source do not see each other's changes", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "same")
			got, err := x.e.Clone(x.ctx, s.ID, specs(2), 0)
			x.noError(err, "clone")
			all := []cube.SandboxID{s.ID, got[0].ID, got[1].ID}
			for _, id := range all {
				x.put(id, "k", string(id))
			}
			for _, id := range all {
				x.holds(id, "k", string(id))
			}
		}},
		{"clone: of a clone, after the source is killed", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "v")
			for range 3 {
				got, err := x.e.Clone(x.ctx, s.ID, specs(1), 0)
				x.noError(err, "clone")
				x.noError(x.e.Kill(x.ctx, s.ID), "kill the source")
				s = got[0]
				x.holds(s.ID, "k", "v")
			}
		}},
		{"clone: ids that are taken, malformed or asked for twice give none", func(x *X) {
			s := x.create()
			twice := specs(2)
			twice[1].ID = twice[0].ID
			taken := specs(2)
			taken[1].ID = s.ID
			malformed := specs(2)
			malformed[1].ID = "x"
			for _, c := range []struct {
				specs []cube.CreateSpec
				want  []error
			}{
				{twice, []error{cube.ErrInvalid, cube.ErrExists}}, {taken, []error{cube.ErrExists}},
				{malformed, []error{cube.ErrInvalid}}, {nil, []error{cube.ErrInvalid}},
			} {
				_, err := x.e.Clone(x.ctx, s.ID, c.specs, 0)
				if !slices.ContainsFunc(c.want, func(want error) bool { return errors.Is(err, want) }) {
					x.Errorf("clone: got error %v, want one of %v", err, c.want)
				}
				if got := x.list(); !slices.Equal(got, []cube.SandboxID{s.ID}) {
					x.Errorf("sandboxes: got %v, want the source alone", got)
				}
			}
			x.runs(s.ID, 1)
		}},
		{"clone: more than fit are refused at once with the figures", func(x *X) {
			s := x.create()
			c := x.connect(s.ID)
			before := x.images()
			began := time.Now()
			_, err := x.e.Clone(x.ctx, s.ID, specs(5000), 0)
			if d := time.Since(began); d > 100*time.Millisecond {
				x.Errorf("the refusal took %v, want less than 100 ms", d)
			}
			x.isRefused(err)
			if got := x.images(); !slices.Equal(got, before) {
				x.Errorf("images: got %v, want %v", got, before)
			}
			if got := x.list(); !slices.Equal(got, []cube.SandboxID{s.ID}) {
				x.Errorf("sandboxes: got %v, want the source alone", got)
			}
			c.works()
		}},
		{"clone: after failure none exists, nor an image, and the source runs on", func(x *X) {
			for _, f := range []Fault{SaveFails, StartFails} {
				s := x.create()
				x.put(s.ID, "k", "v")
				c := x.connect(s.ID)
				before, list := x.images(), x.list()
				undo, ok := x.fault(f, "")
				if !ok {
					continue
				}
				if _, err := x.e.Clone(x.ctx, s.ID, specs(3), 0); err == nil {
					x.Errorf("%s: got no error", f)
				}
				undo()
				if got := x.images(); !slices.Equal(got, before) {
					x.Errorf("%s: images: got %v, want %v", f, got, before)
				}
				if got := x.list(); !slices.Equal(got, list) {
					x.Errorf("%s: sandboxes: got %v, want %v", f, got, list)
				}
				x.holds(s.ID, "k", "v")
				c.works()
				x.runs(s.ID, 1)
			}
		}},
	}
}

package enginetest

import (
	"context"
	"errors"
	"maps"
	"strings"

	cube "cubesandbox"
)

func bootPromises() []promise {
	boot := func(x *X) (cube.Sandbox, cube.BootSpec) {
		spec := x.h.Boot
		spec.ID = cube.NewSandboxID()
		s, err := x.e.Boot(x.ctx, spec)
		x.noError(err, "boot")
		return s, spec
	}
	return []promise{
		{"boot: after success it is running in generation 1 with the limits asked for", func(x *X) {
			s, spec := boot(x)
			if s.ID != spec.ID || s.Limits != spec.Limits || s.Image != "" || s.Generation != 1 || s.State != cube.StateRunning {
				x.Errorf("got %+v, want %s running in generation 1 with %+v and no image", s, spec.ID, spec.Limits)
			}
			x.runs(s.ID, 1)
		}},
		{"boot: an id that is taken exists already", func(x *X) {
			_, spec := boot(x)
			_, err := x.e.Boot(x.ctx, spec)
			x.wantError(err, cube.ErrExists, "boot again")
			x.runs(spec.ID, 1)
		}},
		{"boot: after failure it does not exist", func(x *X) {
			for want, change := range map[error]func(*cube.BootSpec){
				cube.ErrNotFound: func(s *cube.BootSpec) { s.Rootfs = strings.Repeat("0", 64) },
				cube.ErrInvalid:  func(s *cube.BootSpec) { s.Limits.MemoryMiB = 1 },
			} {
				spec := x.h.Boot
				spec.ID = cube.NewSandboxID()
				change(&spec)
				_, err := x.e.Boot(x.ctx, spec)
				x.wantError(err, want, "boot")
				x.gone(spec.ID)
			}
			spec := x.h.Boot
			spec.ID = "x"
			_, err := x.e.Boot(x.ctx, spec)
			x.wantError(err, cube.ErrInvalid, "boot with a malformed id")
		}},
		{"boot: when no life can be started it does not exist", func(x *X) {
			spec := x.h.Boot
			spec.ID = cube.NewSandboxID()
			undo, ok := x.fault(StartFails, "")
			if !ok {
				return
			}
			defer undo()
			if _, err := x.e.Boot(x.ctx, spec); err == nil {
				x.Error("boot: got no error")
			}
			x.gone(spec.ID)
		}},
	}
}

func createPromises() []promise {
	return []promise{
		{"create: it returns when the new life answers, and is running in generation 1", func(x *X) {
			s := x.create()
			x.holds(s.ID, "k", "")
			x.runs(s.ID, 1)
			if s.Image != x.h.Image || s.StartedAt.IsZero() || s.Limits.MemoryMiB == 0 {
				x.Errorf("got %+v, want it to name its image, start and limits", s)
			}
		}},
		{"create: the generation is the one that is asked for", func(x *X) {
			s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Generation: 7})
			x.noError(err, "create")
			if s.Generation != 7 {
				x.Errorf("got generation %d, want 7", s.Generation)
			}
			x.runs(s.ID, 7)
		}},
		{"create: it has the state of the image and not that of another copy", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "saved")
			img := x.save(s.ID)
			x.put(s.ID, "k", "later")
			for range 2 {
				c, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: img})
				x.noError(err, "create")
				x.holds(c.ID, "k", "saved")
				x.put(c.ID, "k", string(c.ID))
			}
			x.holds(s.ID, "k", "later")
		}},
		{"create: nothing reaches the sandbox before the agent knows who it is", func(x *X) {
			spec := cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Identity: cube.Identity{Hostname: "early"}}
			done := make(chan error, 1)
			go func() { done <- errOf(x.e.Create(x.ctx, spec)) }()
			for {
				c, err := x.e.Dial(x.ctx, spec.ID, 0, x.h.EchoPort)
				if err == nil {
					c.Close()
					break
				}
				if !errors.Is(err, cube.ErrNotFound) {
					x.Errorf("dial while it is made: got %v, want not found", err)
					break
				}
				if x.ctx.Err() != nil {
					break
				}
			}
			got, err := x.h.Identity(x.ctx, x.e, spec.ID)
			if err != nil || got.Hostname != "early" {
				x.Errorf("at the first connection: got host name %q, %v; want early", got.Hostname, err)
			}
			x.noError(<-done, "create")
		}},
		{"create: it is told its identity", func(x *X) {
			want := cube.Identity{Hostname: "alice", Env: map[string]string{"CUBE_TEST": "a b", "E": ""}, AccessToken: "t0ken"}
			s, err := x.e.Create(x.ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image, Identity: want})
			x.noError(err, "create")
			x.isTold(s.ID, want)
			plain := x.create()
			x.isTold(plain.ID, cube.Identity{Hostname: plain.ID.Hostname()})
		}},
		{"create: an id that is taken exists already", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "mine")
			_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: s.ID, Image: x.h.Image})
			x.wantError(err, cube.ErrExists, "create")
			x.runs(s.ID, 1)
			x.holds(s.ID, "k", "mine")
		}},
		{"create: from a bad image it fails with the reason, and does not exist", func(x *X) {
			x.eachImageFault(func(_ cube.SandboxID, bad cube.ImageID, want error) {
				id := cube.NewSandboxID()
				_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: id, Image: bad})
				x.wantError(err, want, "create")
				x.gone(id)
			})
		}},
		{"create: after a failure the image is unchanged", func(x *X) {
			s := x.create()
			x.put(s.ID, "k", "saved")
			img := x.save(s.ID)
			undo, ok := x.fault(StartFails, img)
			if !ok {
				return
			}
			id := cube.NewSandboxID()
			if _, err := x.e.Create(x.ctx, cube.CreateSpec{ID: id, Image: img}); err == nil {
				x.Error("create: got no error")
			}
			undo()
			x.gone(id)
			_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: id, Image: img})
			x.noError(err, "create afterwards")
			x.holds(id, "k", "saved")
		}},
		{"create: without memory it is refused with the figures", func(x *X) {
			undo, ok := x.fault(OutOfMemory, x.h.Image)
			if !ok {
				return
			}
			defer undo()
			id := cube.NewSandboxID()
			_, err := x.e.Create(x.ctx, cube.CreateSpec{ID: id, Image: x.h.Image})
			x.isRefused(err)
			x.gone(id)
		}},
		{"create: two at once with one id make one", func(x *X) {
			spec := cube.CreateSpec{ID: cube.NewSandboxID(), Image: x.h.Image}
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- errOf(x.e.Create(x.ctx, spec)) }()
			}
			a, b := <-errs, <-errs
			if a != nil {
				a, b = b, a
			}
			x.noError(a, "one of two")
			x.wantError(b, cube.ErrExists, "the other")
			x.runs(spec.ID, 1)
		}},
		{"create: cancelled it is either there or not", func(x *X) {
			for _, after := range cancelMoments {
				id := cube.NewSandboxID()
				ctx, cancel := context.WithTimeout(x.ctx, after)
				_, err := x.e.Create(ctx, cube.CreateSpec{ID: id, Image: x.h.Image})
				cancel()
				if err == nil {
					x.holds(id, "k", "")
					continue
				}
				x.wantError(err, context.DeadlineExceeded, "create")
				x.gone(id)
			}
		}},
	}
}

// isTold checks what processes inside see.
func (x *X) isTold(id cube.SandboxID, want cube.Identity) {
	x.Helper()
	got, err := x.h.Identity(x.ctx, x.e, id)
	x.noError(err, "identity")
	if got.Hostname != want.Hostname || got.AccessToken != want.AccessToken {
		x.Errorf("got host name %q and token %q, want %q and %q", got.Hostname, got.AccessToken, want.Hostname, want.AccessToken)
	}
	// There may be more in the environment: PATH and the like.
	maps.DeleteFunc(got.Env, func(k, _ string) bool { _, ok := want.Env[k]; return !ok })
	if !maps.Equal(got.Env, want.Env) {
		x.Errorf("got environment %v, want %v", got.Env, want.Env)
	}
}

// isRefused checks an ErrNoCapacity and its figures.
func (x *X) isRefused(err error) {
	x.Helper()
	var c *cube.CapacityError
	if !errors.As(err, &c) || c.Needed <= c.Free || c.Free < 0 {
		x.Errorf("got %v, want no capacity, with needed above free", err)
	}
}

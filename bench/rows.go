package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cube "cubesandbox"
)

// createWorks is a create until /bin/true has exited, and the end of the sandbox.
func (b *bench) createWorks(ctx context.Context, img cube.ImageID) (sample, error) {
	var id cube.SandboxID
	s, err := b.time(ctx, func() (err error) {
		if id, err = b.create(ctx, img); err != nil {
			return err
		}
		return b.works(ctx, id)
	})
	return s, errors.Join(err, b.kill(ctx, id))
}

// createPoolHit: a sandbox that was restored and frozen is claimed.
func (b *bench) createPoolHit(ctx context.Context) error {
	if err := b.pools(ctx, cube.Pools{Restored: map[cube.ImageID]int{b.Template: 2}}); err != nil {
		return err
	}
	return b.measure(ctx, "create.pool_hit", b.times(40), func() (sample, error) { return b.createWorks(ctx, b.Template) })
}

// createBooted: the image is restored into a sentry that was booted ahead.
func (b *bench) createBooted(ctx context.Context) error {
	if err := b.pools(ctx, cube.Pools{Booted: 2}); err != nil {
		return err
	}
	return b.measure(ctx, "create.booted", b.times(25), func() (sample, error) { return b.createWorks(ctx, b.Template) })
}

// createFromSnapshot: as the default settings have it, with booted sentries.
func (b *bench) createFromSnapshot(ctx context.Context) error {
	return b.withSnapshot(ctx, func(_ cube.SandboxID, img cube.ImageID) error {
		if err := b.pools(ctx, cube.Pools{Booted: 2}); err != nil {
			return err
		}
		return b.measure(ctx, "create.from_snapshot", b.times(25), func() (sample, error) { return b.createWorks(ctx, img) })
	})
}

// withSandbox gives f a sandbox for a while.
func (b *bench) withSandbox(ctx context.Context, f func(cube.SandboxID) error) error {
	id, err := b.create(ctx, b.Template)
	if err != nil {
		return err
	}
	return errors.Join(f(id), b.kill(ctx, id))
}

// withSnapshot gives f a sandbox and a snapshot of it for a while.
func (b *bench) withSnapshot(ctx context.Context, f func(cube.SandboxID, cube.ImageID) error) error {
	return b.withSandbox(ctx, func(id cube.SandboxID) error {
		img := cube.NewSnapshotID()
		if _, err := b.Engine.Save(ctx, id, img); err != nil {
			return err
		}
		return errors.Join(f(id, img), b.DeleteImage(img))
	})
}

// snapshots: how long a save takes, and how long the source stands still.
func (b *bench) snapshots(ctx context.Context) error {
	for _, c := range []struct {
		suffix        string
		memory, files int // MiB
	}{{"0", 0, 0}, {"64", 64, 0}, {"256", 256, 0}, {"files_256", 0, 256}} {
		if err := b.withSandbox(ctx, func(id cube.SandboxID) error { return b.snapshot(ctx, id, c.suffix, c.memory, c.files) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) snapshot(ctx context.Context, id cube.SandboxID, suffix string, memory, files int) error {
	g, err := b.startGuest(ctx, id)
	if err != nil {
		return err
	}
	if err := errors.Join(g.hold(ctx, "memory", memory), g.hold(ctx, "files", files), g.watch(ctx)); err != nil {
		return err
	}
	names := []string{"snapshot.wall." + suffix, "snapshot.stopped." + suffix}
	return b.measureSet(ctx, names, b.times(10), func() ([]sample, error) {
		if _, err := g.gap(ctx); err != nil {
			return nil, err
		}
		img := cube.NewSnapshotID()
		wall, err := b.time(ctx, func() error {
			_, err := b.Engine.Save(ctx, id, img)
			return err
		})
		if err != nil {
			return nil, err
		}
		gap, err := g.gap(ctx)
		return []sample{wall, {wall: gap}}, errors.Join(err, b.DeleteImage(img))
	})
}

// rollback: until /bin/true has exited in the new life.
func (b *bench) rollback(ctx context.Context) error {
	return b.withSnapshot(ctx, func(id cube.SandboxID, img cube.ImageID) error {
		if err := b.pools(ctx, cube.Pools{Booted: 2}); err != nil {
			return err
		}
		return b.measure(ctx, "rollback", b.times(25), func() (sample, error) {
			return b.time(ctx, func() error {
				if _, err := b.Engine.Rollback(ctx, id, img); err != nil {
					return err
				}
				return b.works(ctx, id)
			})
		})
	})
}

// pauseResume: pause until the memory is free, resume until /bin/true has exited.
func (b *bench) pauseResume(ctx context.Context) error {
	return b.withSandbox(ctx, func(id cube.SandboxID) error {
		if err := b.pools(ctx, cube.Pools{Booted: 2}); err != nil {
			return err
		}
		gen := cube.Generation(1)
		return b.measureSet(ctx, []string{"pause", "resume"}, b.times(15), func() ([]sample, error) {
			img := cube.NewSnapshotID()
			pause, err := b.time(ctx, func() error {
				_, err := b.Engine.Pause(ctx, id, img, cube.Pausing{})
				return err
			})
			if err != nil {
				return nil, err
			}
			gen++
			resume, err := b.time(ctx, func() error {
				if _, err := b.Engine.Resume(ctx, cube.CreateSpec{ID: id, Image: img, Generation: gen}); err != nil {
					return err
				}
				return b.works(ctx, id)
			})
			return []sample{pause, resume}, errors.Join(err, b.DeleteImage(img))
		})
	})
}

// clones: until /bin/true has exited in every clone.
func (b *bench) clones(ctx context.Context) error {
	for _, c := range []struct{ clones, times int }{{1, 15}, {10, 6}, {50, 2}} {
		name := fmt.Sprintf("clone.%d", c.clones)
		if !b.wanted([]string{name}) {
			continue
		}
		err := b.withSandbox(ctx, func(id cube.SandboxID) error {
			if err := b.pools(ctx, cube.Pools{Booted: min(c.clones, 10)}); err != nil {
				return err
			}
			return b.measure(ctx, name, b.times(c.times), func() (sample, error) { return b.clone(ctx, id, c.clones) })
		})
		if err != nil {
			return err
		}
		if err := b.pools(ctx, cube.Pools{}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) clone(ctx context.Context, id cube.SandboxID, n int) (sample, error) {
	specs := make([]cube.CreateSpec, n)
	ids := make([]cube.SandboxID, n)
	for i := range specs {
		ids[i] = cube.NewSandboxID()
		specs[i].ID = ids[i]
	}
	cloned := false
	s, err := b.time(ctx, func() error {
		if _, err := b.Engine.Clone(ctx, id, specs, 0); err != nil {
			return err
		}
		cloned = true
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i, id := range ids {
			wg.Go(func() { errs[i] = b.works(ctx, id) })
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if cloned {
		err = errors.Join(err, b.kill(ctx, ids...))
	}
	return s, err
}

// exec: a process started and ended in a sandbox that runs, over a connection
// that is open.
func (b *bench) exec(ctx context.Context) error {
	return b.withSandbox(ctx, func(id cube.SandboxID) error {
		sh := b.Connect(id)
		defer sh.Close()
		for _, c := range []struct {
			name string
			argv []string
		}{
			{"exec.true", []string{"/bin/true"}},
			{"exec.bash_login", []string{"/bin/bash", "-l", "-c", "echo ok"}},
		} {
			if err := b.measure(ctx, c.name, b.times(50), func() (sample, error) {
				return b.time(ctx, func() error { return sh.Run(ctx, c.argv...) })
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// idle: what the host is charged for a sandbox beyond what its guest has committed.
func (b *bench) idle(ctx context.Context) error {
	return b.withSandbox(ctx, func(id cube.SandboxID) error {
		b.begin("idle.overhead_mb")
		rest := time.NewTimer(b.IdleAfter) // the time is what is measured
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		u, err := b.Engine.Usage(ctx, id)
		if err != nil {
			return err
		}
		b.done(Row{Name: "idle.overhead_mb", N: 1, Value: float64((u.HostMemory-u.GuestMemory)/1e4) / 100})
		return nil
	})
}

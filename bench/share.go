package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cube "cubesandbox"
)

// What copies share, and what a snapshot costs that comes after another. Each row is
// measured with the engine and, where there is one, with that of stock gVisor.

// roomy is what sandboxes of these rows have: more than the template's, which have no
// room for the largest.
var roomy = cube.Limits{MemoryMiB: 3072, CPUs: 2, DiskMiB: 4096, Pids: 1024}

// holding gives f a sandbox that holds so many MiB, with the program in it.
func (b *bench) holding(ctx context.Context, memory, files int, f func(cube.SandboxID, *guest) error) error {
	id := cube.NewSandboxID()
	if _, err := b.Engine.Boot(ctx, cube.BootSpec{ID: id, Rootfs: b.Rootfs, Limits: roomy}); err != nil {
		return err
	}
	work := func() error {
		g, err := b.startGuest(ctx, id)
		if err == nil {
			err = errors.Join(g.hold(ctx, "memory", memory), g.hold(ctx, "files", files))
		}
		if err != nil {
			return err
		}
		return f(id, g)
	}
	return errors.Join(work(), b.kill(ctx, id))
}

// saved gives f a snapshot of a sandbox that holds so many MiB, and has ended.
func (b *bench) saved(ctx context.Context, memory, files int, f func(cube.ImageID) error) error {
	img := cube.NewSnapshotID()
	err := b.holding(ctx, memory, files, func(id cube.SandboxID, _ *guest) error {
		_, err := b.Engine.Save(ctx, id, img)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(f(img), b.DeleteImage(img))
}

// share measures all rows of this file.
func (b *bench) share(ctx context.Context) error {
	both := []*bench{b}
	if b.Stock != nil {
		c := *b.Stock
		c.Meter, c.N, c.Only = b.Meter, b.N, b.Only
		c.Begin, c.Done = b.Begin, b.Done
		both = append(both, &bench{Config: c, suffix: ".stock"})
	}
	for _, r := range []struct {
		name string
		run  func(*bench, context.Context) error
	}{
		{"share.restore", (*bench).shareRestore},
		{"share.clone", (*bench).shareClone},
		{"share.again", (*bench).shareAgain},
		{"share.hundred", (*bench).shareHundred},
		{"share.first_write", (*bench).shareFirstWrite},
		{"share.cold", (*bench).shareCold},
		{"share.extra_mb", (*bench).shareExtra},
	} {
		for _, one := range both {
			if !b.wanted([]string{r.name}) {
				continue
			}
			err := r.run(one, ctx)
			err = errors.Join(err, one.pools(context.WithoutCancel(ctx), cube.Pools{}))
			if one != b {
				b.rows, one.rows = append(b.rows, one.rows...), nil
			}
			if err != nil {
				return fmt.Errorf("%s%s: %w", r.name, one.suffix, err)
			}
		}
	}
	return nil
}

// answers is a create from an image until the program inside has answered.
func (b *bench) answers(ctx context.Context, img cube.ImageID) (cube.SandboxID, error) {
	id, err := b.create(ctx, img)
	if err == nil {
		err = b.guestIn(id).hello(ctx)
	}
	return id, err
}

// restored measures it, from a booted sentry. A first copy lives for a while: the engine
// learns from it where others will write.
func (b *bench) restored(ctx context.Context, name string, n int, img cube.ImageID, before func() error) error {
	if err := b.pools(ctx, cube.Pools{Booted: 1}); err != nil {
		return err
	}
	id, err := b.answers(ctx, img)
	if err = errors.Join(err, b.learn(ctx), b.kill(ctx, id)); err != nil {
		return err
	}
	return b.measure(ctx, name+b.suffix, b.times(n), func() (sample, error) {
		if err := before(); err != nil {
			return sample{}, err
		}
		var id cube.SandboxID
		s, err := b.time(ctx, func() (err error) {
			id, err = b.answers(ctx, img)
			return err
		})
		return s, errors.Join(err, b.kill(ctx, id))
	})
}

// learn waits until the engine has had time to learn from what has just been made.
func (b *bench) learn(ctx context.Context) error {
	select {
	case <-time.After(b.Learn):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bench) shareRestore(ctx context.Context) error {
	for _, c := range []struct{ memory, files int }{{8, 0}, {64, 0}, {256, 0}, {1024, 0}, {8, 256}, {8, 1024}} {
		name := fmt.Sprintf("share.restore.memory_%d", c.memory)
		if c.files > 0 {
			name = fmt.Sprintf("share.restore.files_%d", c.files)
		}
		err := b.saved(ctx, c.memory, c.files, func(img cube.ImageID) error {
			return b.restored(ctx, name, 12, img, func() error { return nil })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shareCold: nothing of the image is in the page cache.
func (b *bench) shareCold(ctx context.Context) error {
	return b.saved(ctx, 256, 0, func(img cube.ImageID) error {
		return b.restored(ctx, "share.cold.256", 8, img, func() error { return b.Evict(img) })
	})
}

// shareClone: ten clones of 1 GB, until the program has answered in each.
func (b *bench) shareClone(ctx context.Context) error {
	const n = 10
	return b.holding(ctx, 1024, 0, func(id cube.SandboxID, _ *guest) error {
		if err := b.pools(ctx, cube.Pools{Booted: n}); err != nil {
			return err
		}
		ids, err := b.clonesOf(ctx, id, n)
		err = errors.Join(err, b.learn(ctx), b.kill(ctx, ids...))
		if err != nil {
			return err
		}
		return b.measure(ctx, "share.clone.10.1024"+b.suffix, b.times(4), func() (sample, error) {
			var ids []cube.SandboxID
			s, err := b.time(ctx, func() (err error) {
				ids, err = b.clonesOf(ctx, id, n)
				return err
			})
			return s, errors.Join(err, b.kill(ctx, ids...))
		})
	})
}

// clonesOf makes clones, in each of which the program has answered.
func (b *bench) clonesOf(ctx context.Context, id cube.SandboxID, n int) ([]cube.SandboxID, error) {
	specs, ids, errs := make([]cube.CreateSpec, n), make([]cube.SandboxID, n), make([]error, n)
	for i := range specs {
		ids[i] = cube.NewSandboxID()
		specs[i].ID = ids[i]
	}
	if _, err := b.Engine.Clone(ctx, id, specs, 0); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { errs[i] = b.guestIn(id).hello(ctx) })
	}
	wg.Wait()
	return ids, errors.Join(errs...)
}

// shareAgain: snapshots of 1 GB of which 5 MB have changed since the last.
func (b *bench) shareAgain(ctx context.Context) error {
	const changed = 5
	return b.holding(ctx, 1024, 0, func(id cube.SandboxID, g *guest) error {
		if err := g.watch(ctx); err != nil {
			return err
		}
		written, times := int64(0), -1
		names := []string{"share.again.wall.1024" + b.suffix, "share.again.stopped.1024" + b.suffix}
		err := b.measureSet(ctx, names, b.times(10), func() ([]sample, error) {
			wall, stopped, im, err := b.saveChanged(ctx, id, g, changed)
			if times++; times > 0 { // the first one, to warm up, has all
				written += im.PagesBytes
			}
			return []sample{wall, stopped}, err
		})
		if err == nil {
			b.done(Row{Name: "share.again.written_mb.1024" + b.suffix, N: times, Value: float64(written) / float64(max(times, 1)) / 1e6})
		}
		return err
	})
}

// saveChanged changes some MiB, saves, and deletes what was saved.
func (b *bench) saveChanged(ctx context.Context, id cube.SandboxID, g *guest, changed int) (wall, stopped sample, im cube.Image, err error) {
	if err = g.change(ctx, changed); err == nil {
		_, err = g.gap(ctx)
	}
	if err != nil {
		return wall, stopped, im, err
	}
	img := cube.NewSnapshotID()
	wall, err = b.time(ctx, func() (err error) {
		im, err = b.Engine.Save(ctx, id, img)
		return err
	})
	if err != nil {
		return wall, stopped, im, err
	}
	stopped.wall, err = g.gap(ctx)
	return wall, stopped, im, errors.Join(err, b.DeleteImage(img))
}

// shareHundred: a hundred snapshots in a row, and how much longer the last ten take than
// the first ten that follow the first.
func (b *bench) shareHundred(ctx context.Context) error {
	n := max(30, b.times(100))
	return b.holding(ctx, 256, 0, func(id cube.SandboxID, g *guest) error {
		if err := g.watch(ctx); err != nil {
			return err
		}
		b.begin("share.hundred" + b.suffix)
		var took []sample
		for range n + 1 {
			wall, _, _, err := b.saveChanged(ctx, id, g, 1)
			if err != nil {
				return err
			}
			took = append(took, wall)
		}
		first, last := row("", took[1:11]), row("", took[len(took)-10:])
		b.done(Row{Name: "share.hundred.last_by_first" + b.suffix, N: n, Value: last.P50 / first.P50})
		return nil
	})
}

// shareFirstWrite: a copy writes to each page for the first time.
func (b *bench) shareFirstWrite(ctx context.Context) error {
	return b.saved(ctx, 256, 0, func(img cube.ImageID) error {
		return b.measure(ctx, "share.first_write.256"+b.suffix, b.times(8), func() (s sample, err error) {
			id, err := b.answers(ctx, img)
			if err == nil {
				s.wall, err = b.guestIn(id).touch(ctx)
			}
			return s, errors.Join(err, b.kill(ctx, id))
		})
	})
}

// shareExtra: what a clone of 256 MB takes of the host beyond its parent when it has read
// all its memory.
func (b *bench) shareExtra(ctx context.Context) error {
	const n = 4
	return b.holding(ctx, 256, 0, func(id cube.SandboxID, g *guest) error {
		b.begin("share.extra_mb.256" + b.suffix)
		ids, err := b.clonesOf(ctx, id, n)
		if err != nil {
			return err
		}
		for _, one := range append(ids, id) {
			err = errors.Join(err, b.guestIn(one).read(ctx))
		}
		var alone, all int64
		if err == nil {
			alone, err = b.Footprint(ctx, id)
		}
		if err == nil {
			all, err = b.Footprint(ctx, append(ids, id)...)
		}
		if err = errors.Join(err, b.kill(ctx, ids...)); err != nil {
			return err
		}
		b.done(Row{Name: "share.extra_mb.256" + b.suffix, N: n, Value: float64(all-alone) / n / 1e6})
		return nil
	})
}

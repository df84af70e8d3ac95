package bench

import (
	"context"
	"errors"
	"time"

	cube "cubesandbox"
)

// restores measures the engine and, beside it, runsc: each in turn, so that both
// see the same machine.
func (b *bench) restores(ctx context.Context) error {
	if b.Baseline != nil {
		b.begin("a guest saved by runsc")
		if err := b.Baseline.Prepare(ctx); err != nil {
			return err
		}
		b.done()
	}
	for _, c := range []struct {
		suffix  string
		created bool
	}{{"a", false}, {"b", true}} {
		names := []string{"restore.ours." + c.suffix}
		if b.Baseline != nil {
			names = append(names, "restore.runsc."+c.suffix)
		}
		if err := b.measureSet(ctx, names, b.times(15), func() ([]sample, error) {
			ours, err := b.restoreOurs(ctx, c.created)
			if err != nil || b.Baseline == nil {
				return []sample{ours}, err
			}
			stock, err := b.Baseline.restore(ctx, c.created)
			return []sample{ours, stock}, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// restoreOurs measures a create until the agent has answered: with a sentry that
// was booted ahead, which is not replaced meanwhile, or from nothing.
func (b *bench) restoreOurs(ctx context.Context, booted bool) (s sample, err error) {
	if booted {
		if err := b.pools(ctx, cube.Pools{Booted: 1}); err != nil {
			return s, err
		}
	}
	before, err := b.Meter.CPU()
	if err != nil {
		return s, err
	}
	began := time.Now()
	id, err := b.create(ctx, b.Template)
	if err != nil {
		return s, err
	}
	s.wall = time.Since(began)
	after, err := b.Meter.CPU()
	s.cpu = after - before
	return s, errors.Join(err, b.kill(ctx, id), b.pools(ctx, cube.Pools{}))
}

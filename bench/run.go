package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	cube "cubesandbox"
)

// bench is one run.
type bench struct {
	Config
	rows   []Row
	suffix string // of the names of rows
}

// Run measures every row. After an error the rows so far are returned with it;
// sandboxes and images are taken away in either case.
func Run(ctx context.Context, c Config) ([]Row, error) {
	b := &bench{Config: c}
	if b.N <= 0 {
		b.N = 1
	}
	groups := []struct {
		rows []string // names of what it measures
		run  func(context.Context) error
	}{
		{[]string{"create.pool_hit"}, b.createPoolHit},
		{[]string{"create.booted"}, b.createBooted},
		{[]string{"create.from_snapshot"}, b.createFromSnapshot},
		{[]string{"snapshot.wall", "snapshot.stopped"}, b.snapshots},
		{[]string{"rollback"}, b.rollback},
		{[]string{"pause", "resume"}, b.pauseResume},
		{[]string{"clone.1", "clone.10", "clone.50"}, b.clones},
		{[]string{"exec.true", "exec.bash_login"}, b.exec},
		{[]string{"restore.ours", "restore.runsc"}, b.restores},
		{[]string{"idle.overhead_mb"}, b.idle},
		{[]string{"share"}, b.share},
	}
	for _, g := range groups {
		if !b.wanted(g.rows) {
			continue
		}
		err := g.run(ctx)
		if perr := b.pools(context.WithoutCancel(ctx), cube.Pools{}); err == nil {
			err = perr
		}
		if err != nil {
			return b.rows, fmt.Errorf("%s: %w", strings.Join(g.rows, ", "), err)
		}
	}
	return b.rows, nil
}

func (b *bench) wanted(names []string) bool {
	if len(b.Only) == 0 {
		return true
	}
	for _, n := range names {
		for _, o := range b.Only {
			if strings.HasPrefix(n, o) || strings.HasPrefix(o, n) {
				return true
			}
		}
	}
	return false
}

// times is how often something is measured, n being the default.
func (b *bench) times(n int) int { return max(1, int(math.Round(float64(n)*b.N))) }

// pools sets them and waits until they are full.
func (b *bench) pools(ctx context.Context, p cube.Pools) error {
	if err := b.Engine.SetPools(ctx, p); err != nil {
		return err
	}
	return b.Engine.PoolsReady(ctx)
}

// time measures one operation. Its CPU time ends when the pools are full again.
func (b *bench) time(ctx context.Context, op func() error) (sample, error) {
	before, err := b.Meter.CPU()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := op(); err != nil {
		return sample{}, err
	}
	wall := time.Since(began)
	if err := b.Engine.PoolsReady(ctx); err != nil {
		return sample{}, err
	}
	after, err := b.Meter.CPU()
	return sample{wall, after - before}, err
}

// measure warms up, then takes n samples of one row.
func (b *bench) measure(ctx context.Context, name string, n int, once func() (sample, error)) error {
	return b.measureSet(ctx, []string{name}, n, func() ([]sample, error) {
		s, err := once()
		return []sample{s}, err
	})
}

// measureSet is measure for rows that come from the same operation.
func (b *bench) measureSet(ctx context.Context, names []string, n int, once func() ([]sample, error)) error {
	b.begin(strings.Join(names, ", "))
	all := make([][]sample, len(names))
	for i := range n + 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := once()
		if err != nil {
			return err
		}
		if i == 0 {
			continue // to warm up
		}
		for j := range names {
			all[j] = append(all[j], got[j])
		}
	}
	rows := make([]Row, len(names))
	for j, name := range names {
		rows[j] = row(name, all[j])
	}
	b.done(rows...)
	return nil
}

func (b *bench) begin(what string) {
	if b.Begin != nil {
		b.Begin(what)
	}
}

func (b *bench) done(rows ...Row) {
	b.rows = append(b.rows, rows...)
	if b.Done != nil {
		b.Done(rows)
	}
}

// works returns when /bin/true has exited in a sandbox.
func (b *bench) works(ctx context.Context, id cube.SandboxID) error {
	sh := b.Connect(id)
	defer sh.Close()
	return sh.Run(ctx, "/bin/true")
}

// create makes a sandbox from an image.
func (b *bench) create(ctx context.Context, img cube.ImageID) (cube.SandboxID, error) {
	id := cube.NewSandboxID()
	_, err := b.Engine.Create(ctx, cube.CreateSpec{ID: id, Image: img})
	return id, err
}

// kill also cleans up after ctx has ended.
func (b *bench) kill(ctx context.Context, ids ...cube.SandboxID) (err error) {
	for _, id := range ids {
		if id == "" { // it was not made
			continue
		}
		if kerr := b.Engine.Kill(context.WithoutCancel(ctx), id); err == nil {
			err = kerr
		}
	}
	return err
}

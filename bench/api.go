package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

// APIConfig says what is measured of a server. Its figures are what a client on the
// same machine sees, over connections that are open: the engine's time and that of
// everything before it.
type APIConfig struct {
	Client *client.Client
	// Template is the name or id of what sandboxes start from.
	Template string
	// Rest is how long the server gets to fill its pools before a create that is to
	// find them full. Nobody outside can see when they are.
	Rest time.Duration
	// N, Only, Begin and Done are those of Config.
	N     float64
	Only  []string
	Begin func(rows string)
	Done  func([]Row)
}

// apiBench is one run.
type apiBench struct {
	bench
	c        *client.Client
	template string
	rest     time.Duration
}

// RunAPI measures a server. Sandboxes and snapshots that it makes are taken away.
func RunAPI(ctx context.Context, c APIConfig) ([]Row, error) {
	if c.N <= 0 {
		c.N = 1
	}
	b := &apiBench{bench: bench{Config: Config{N: c.N, Only: c.Only, Begin: c.Begin, Done: c.Done}}, c: c.Client, template: c.Template, rest: c.Rest}
	for _, g := range []struct {
		rows []string
		run  func(context.Context) error
	}{
		{[]string{"api.create", "api.create.busy"}, b.create},
		{[]string{"api.get", "api.list", "proxy.health", "proxy.exec_true"}, b.reads},
		{[]string{"api.snapshot", "api.rollback"}, b.snapshotRollback},
		{[]string{"api.pause", "api.resume"}, b.pauseResume},
		{[]string{"api.clone10"}, b.clone10},
	} {
		if !b.wanted(g.rows) {
			continue
		}
		if err := g.run(ctx); err != nil {
			return b.rows, fmt.Errorf("%s: %w", strings.Join(g.rows, ", "), err)
		}
	}
	return b.rows, nil
}

// clocked times one operation.
func clocked(op func() error) (sample, error) {
	began := time.Now()
	err := op()
	return sample{wall: time.Since(began)}, err
}

// one measures a row whose operation has no preparation.
func (b *apiBench) one(ctx context.Context, name string, n int, op func() error) error {
	if !b.wanted([]string{name}) {
		return nil
	}
	return b.measure(ctx, name, b.times(n), func() (sample, error) { return clocked(op) })
}

// with gives f a sandbox for a while.
func (b *apiBench) with(ctx context.Context, f func(client.Sandbox) error) error {
	s, err := b.c.Create(ctx, client.NewSandbox{Template: b.template})
	if err != nil {
		return err
	}
	return errors.Join(f(s), b.c.Kill(context.WithoutCancel(ctx), s.ID))
}

// create: until the agent has answered; rested, and one after the other without rest.
func (b *apiBench) create(ctx context.Context) error {
	for _, c := range []struct {
		name string
		rest time.Duration
	}{{"api.create", b.rest}, {"api.create.busy", 0}} {
		if !b.wanted([]string{c.name}) {
			continue
		}
		if err := b.measure(ctx, c.name, b.times(12), func() (sample, error) { return b.createOne(ctx, c.rest) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *apiBench) createOne(ctx context.Context, rest time.Duration) (took sample, err error) {
	rested := time.NewTimer(rest)
	defer rested.Stop()
	select {
	case <-ctx.Done():
		return took, ctx.Err()
	case <-rested.C:
	}
	var s client.Sandbox
	took, err = clocked(func() (err error) {
		s, err = b.c.Create(ctx, client.NewSandbox{Template: b.template})
		return err
	})
	if err != nil {
		return took, err
	}
	return took, b.c.Kill(context.WithoutCancel(ctx), s.ID)
}

// reads are calls without work for the engine. The list's name says how many
// sandboxes it held.
func (b *apiBench) reads(ctx context.Context) error {
	return b.with(ctx, func(s client.Sandbox) error {
		if err := b.one(ctx, "api.get", 200, func() error { _, err := b.c.Get(ctx, s.ID); return err }); err != nil {
			return err
		}
		all, err := b.c.List(ctx, client.Query{})
		if err != nil {
			return err
		}
		list := fmt.Sprintf("api.list.%d", len(all))
		if err := b.one(ctx, list, 50, func() error { _, err := b.c.List(ctx, client.Query{}); return err }); err != nil {
			return err
		}
		g, err := b.c.Guest(s.ID, s.AccessToken)
		if err != nil {
			return err
		}
		if err := b.one(ctx, "proxy.health", 200, func() error { return g.Health(ctx) }); err != nil {
			return err
		}
		return b.one(ctx, "proxy.exec_true", 50, func() error {
			_, err := g.Run(ctx, client.Command{Argv: []string{"/bin/true"}})
			return err
		})
	})
}

func (b *apiBench) snapshotRollback(ctx context.Context) error {
	return b.with(ctx, func(s client.Sandbox) error {
		return b.measureSet(ctx, []string{"api.snapshot", "api.rollback"}, b.times(10), func() ([]sample, error) {
			var snap client.Snapshot
			saved, err := clocked(func() (err error) {
				snap, err = b.c.Snapshot(ctx, s.ID, "")
				return err
			})
			if err != nil {
				return nil, err
			}
			back, err := clocked(func() error { return b.c.Rollback(ctx, s.ID, string(snap.ID)) })
			return []sample{saved, back}, errors.Join(err, b.c.DeleteImage(context.WithoutCancel(ctx), string(snap.ID)))
		})
	})
}

func (b *apiBench) pauseResume(ctx context.Context) error {
	return b.with(ctx, func(s client.Sandbox) error {
		return b.measureSet(ctx, []string{"api.pause", "api.resume"}, b.times(10), func() ([]sample, error) {
			pause, err := clocked(func() error { return b.c.Pause(ctx, s.ID) })
			if err != nil {
				return nil, err
			}
			resume, err := clocked(func() error {
				_, err := b.c.Connect(ctx, s.ID, 0)
				return err
			})
			return []sample{pause, resume}, err
		})
	})
}

func (b *apiBench) clone10(ctx context.Context) error {
	return b.with(ctx, func(s client.Sandbox) error {
		return b.measure(ctx, "api.clone10", b.times(4), func() (took sample, err error) {
			var clones []client.Sandbox
			took, err = clocked(func() (err error) {
				clones, err = b.c.Clone(ctx, s.ID, client.Cloning{Count: 10})
				return err
			})
			return took, errors.Join(err, b.killAll(ctx, clones))
		})
	})
}

// killAll also cleans up after ctx has ended.
func (b *apiBench) killAll(ctx context.Context, all []client.Sandbox) error {
	var failed []error
	for _, s := range all {
		if err := b.c.Kill(context.WithoutCancel(ctx), s.ID); err != nil && !errors.Is(err, cube.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

package gvisor

import (
	"context"
	"errors"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// takeUp enters what runs already, ends what another engine had begun, and lets
// run what one had frozen. What fails for one sandbox is logged and keeps none of
// the others.
func (e *Engine) takeUp(ctx context.Context) error {
	lives, err := e.keeper.lives(ctx)
	if err != nil {
		return err
	}
	current := map[cube.SandboxID]keeperapi.Life{}
	var end []string
	for _, l := range lives {
		id := l.Labels.Sandbox
		old, twice := current[id]
		switch {
		case l.Labels.Role != keeperapi.RoleCurrent, e.paused(l):
			end = append(end, l.Life)
		case twice && old.Labels.Generation > l.Labels.Generation:
			end = append(end, l.Life)
		case twice:
			end = append(end, old.Life)
			current[id] = l
		default:
			current[id] = l
		}
	}
	// Those first: none may run beside the life that is to go on.
	failed := map[cube.SandboxID]bool{}
	for _, l := range lives {
		for _, id := range end {
			if l.Life == id && e.endLife(id, cube.DeathKilled) != nil {
				failed[l.Labels.Sandbox] = true
			}
		}
	}
	for id, l := range current {
		s := newSandbox(l)
		s.cost = cost(l.Limits.MemoryMiB << 20 / 4) // until it is measured: a quarter of what it may have
		e.enter(s)
		if l.State == keeperapi.StatePaused && !failed[id] && !l.Detached {
			if err := e.resumeLife(ctx, l.Life); err != nil {
				e.log.Error("a sandbox that was frozen does not run on", "sandbox", id, "error", err)
				s.setState(cube.StateFrozen)
			}
		}
		if l.State != keeperapi.StateDead && !l.Detached {
			e.follow(s)
		}
	}
	return nil
}

// paused reports whether the life is that of a sandbox whose pause was published:
// the image is the sandbox since then.
func (e *Engine) paused(l keeperapi.Life) bool {
	if l.Labels.Pausing == "" {
		return false
	}
	_, err := e.images.Image(l.Labels.Pausing)
	return err == nil
}

// resumeLife lets a frozen life run, with its egress, whatever state both are in.
func (e *Engine) resumeLife(ctx context.Context, life string) error {
	if err := e.net.FreezeEgress(ctx, life, false); err != nil && !errors.Is(err, cube.ErrNotFound) {
		e.log.Warn("egress stays closed", "life", life, "error", err)
	}
	return e.thaw(ctx, life)
}

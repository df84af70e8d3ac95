package gvisor

import (
	"context"
	"errors"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// found is a life that ran when the engine was opened.
type found struct {
	life
	keeperapi.Life
}

// takeUp enters what runs already, ends what another engine had begun, and lets
// run what one had frozen. What fails for one sandbox is logged and keeps none of
// the others.
func (e *Engine) takeUp(ctx context.Context) error {
	var all []found
	for _, k := range e.keepers.list() {
		lives, err := k.lives(ctx)
		if err != nil {
			return err
		}
		for _, l := range lives {
			all = append(all, found{life{l.Life, k}, l})
		}
	}
	current, end := e.sort(ctx, all)
	// Those first: none may run beside the life that is to go on.
	left := map[cube.SandboxID][]life{}
	for _, l := range end {
		id := l.Labels.Sandbox
		switch _, goesOn := current[id]; {
		case e.endLife(l.life, cube.DeathKilled) == nil:
		case goesOn:
			left[id] = append(left[id], l.life)
		default:
			e.background(func() { e.endSurely(l.life) })
		}
	}
	for id, l := range current {
		e.goOn(l, left[id])
	}
	return nil
}

// sort finds the current life of each sandbox, and those that are to be ended. Two
// lives of one sandbox may be with different keepers: it was rolled back to an image
// of another version.
func (e *Engine) sort(ctx context.Context, all []found) (current map[cube.SandboxID]found, end []found) {
	current = map[cube.SandboxID]found{}
	for _, l := range all {
		id := l.Labels.Sandbox
		old, twice := current[id]
		switch {
		case l.Labels.Role != keeperapi.RoleCurrent, e.paused(ctx, l.Life):
			end = append(end, l)
		case twice && old.Labels.Generation > l.Labels.Generation:
			end = append(end, l)
		case twice:
			end = append(end, old)
			current[id] = l
		default:
			current[id] = l
		}
	}
	return current, end
}

// goOn enters a life as that of its sandbox. Where others of it could not be ended
// now it stays frozen, if it is, until they have.
func (e *Engine) goOn(l found, others []life) {
	s := newSandbox(l.k, l.Life)
	s.cost = cost(l.Limits.MemoryMiB << 20 / 4) // until it is measured: a quarter of what it may have
	e.enter(s)
	frozen := l.State == keeperapi.StatePaused && !l.Detached
	switch {
	case len(others) > 0 && frozen:
		s.setState(cube.StateFrozen)
		e.endFirst(s, others, func() { e.thawFrom(s, l.life, 0) })
	case len(others) > 0 && l.Detached:
		e.endFirst(s, others, func() {}) // then it is revived
	case frozen:
		e.unfreeze(s, l.life)
	}
	if !frozen && !l.Detached {
		for _, o := range others { // it runs: the others do not
			e.background(func() { e.endSurely(o) })
		}
	}
	if l.State != keeperapi.StateDead && !l.Detached {
		e.follow(s)
	}
}

// paused reports whether the life is that of a sandbox whose pause was published:
// the image is the sandbox since then. A life that still is there is ended for a
// whole and durable image only; for another the image goes, and the life goes on.
func (e *Engine) paused(ctx context.Context, l keeperapi.Life) bool {
	id := l.Labels.Pausing
	if id == "" {
		return false
	}
	im, err := e.images.Image(id)
	if errors.Is(err, cube.ErrNotFound) {
		return false
	}
	if l.State == keeperapi.StateDead {
		return true // there is nothing else
	}
	if err == nil {
		err = e.images.Verify(ctx, id)
	}
	if err == nil && !im.Durable {
		err = e.images.Sync(ctx, id)
	}
	if err == nil {
		return true
	}
	e.log.Error("the image of a pause cannot be used; the sandbox runs on", "sandbox", l.Labels.Sandbox, "image", id, "error", err)
	if err := e.images.Delete(id); err != nil {
		// Then both are there. The service finds the sandbox running.
		e.log.Error("that image stays", "image", id, "error", err)
	}
	return false
}

// resumeLife lets a frozen life run, with its egress, whatever state both are in.
func (e *Engine) resumeLife(ctx context.Context, l life) error {
	if err := l.k.net.FreezeEgress(ctx, l.id, false); err != nil && !errors.Is(err, cube.ErrNotFound) {
		e.log.Warn("egress stays closed", "life", l.id, "error", err)
	}
	return l.thaw(ctx)
}

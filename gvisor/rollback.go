package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// Rollback implements cube.Engine.
func (e *Engine) Rollback(ctx context.Context, id cube.SandboxID, im cube.ImageID) (cube.Sandbox, error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer end()
	s, err := e.lock(id)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer s.unlock()
	f, err := e.openImage(im)
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s: %w", id, err)
	}
	defer f.Close()
	done, err := e.admission.reserve(e, cost(f.Image.PagesBytes))
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s: %w", id, err)
	}
	defer done()
	old, info, identity := s.current()
	l := keeperapi.Labels{Role: keeperapi.RolePending, Sandbox: id, Generation: info.Generation + 1, Image: im, Identity: identity}
	if err := e.replace(ctx, s, old, source{f.Image, f.Files}, l); err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s to %s: %w", id, im, e.orDead(s, err))
	}
	return s.view(), nil
}

// replace puts a restored life in the place of the old one. The second sentry is
// made ready while the first runs; from freeze to switch nobody runs, so there
// are never two. After a failure the old life runs on.
func (e *Engine) replace(ctx context.Context, s *sandbox, old string, src source, l keeperapi.Labels) error {
	life, err := e.bootedLife(ctx, shapeOf(src.image), l)
	if err != nil {
		e.unfreeze(s, old)
		return err
	}
	// The turn to restore is waited for while the old life still runs.
	turn, err := e.takeTurn(ctx)
	if err != nil {
		e.bury(life)
		e.unfreeze(s, old)
		return err
	}
	defer turn()
	if err := e.stop(ctx, s, old); err != nil {
		e.bury(life)
		return err
	}
	v, err := e.restoreAs(ctx, life, src, l)
	if err != nil {
		e.giveWay(s, life, old)
		return err
	}
	// The point of no return: requests go to the new life.
	e.switchLife(s, v, cost(src.image.PagesBytes))
	e.bury(old)
	return nil
}

// giveWay ends the new life and then lets the old one run on. Where the new one
// cannot be ended now, the old one waits: two must never run.
func (e *Engine) giveWay(s *sandbox, life, old string) {
	if e.endLife(life, cube.DeathKilled) == nil {
		e.unfreeze(s, old)
		return
	}
	s.setState(cube.StateFrozen)
	e.background(func() {
		for e.endLife(life, cube.DeathKilled) != nil {
			select {
			case <-time.After(time.Second):
			case <-e.ctx.Done():
				return // the next engine ends it before it lets the old one run
			}
		}
		e.unfreeze(s, old)
	})
}

func (e *Engine) restoreAs(ctx context.Context, life string, src source, l keeperapi.Labels) (keeperapi.Life, error) {
	files, err := src.reopen()
	if err != nil {
		return keeperapi.Life{}, err
	}
	defer closeAll(files)
	who := identify(l.Sandbox, l.Generation, l.Identity, src.image.Limits)
	if err := e.loadLife(ctx, life, src.image, files, who); err != nil {
		return keeperapi.Life{}, err
	}
	return e.makeCurrent(ctx, life, l)
}

// stop freezes a life and closes its egress: what it had under way must not go
// out after the new life has begun.
func (e *Engine) stop(ctx context.Context, s *sandbox, life string) error {
	err := e.freeze(ctx, life)
	if err == nil {
		s.setState(cube.StateFrozen)
		// A life without a NIC has no egress.
		if err = e.net.FreezeEgress(ctx, life, true); errors.Is(err, cube.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		e.unfreeze(s, life) // it may be frozen although the answer was lost
	}
	return err
}

// switchLife makes another life the sandbox's current one.
func (e *Engine) switchLife(s *sandbox, v keeperapi.Life, cost int64) {
	s.unfollow()
	old, _, _ := s.current()
	e.mu.Lock()
	delete(e.byLife, old)
	e.mu.Unlock()
	s.adopt(v)
	s.mu.Lock()
	s.cost = cost
	s.mu.Unlock()
	e.assign(s)
	e.follow(s)
}

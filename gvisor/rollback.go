package gvisor

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// Rollback implements cube.Engine.
func (e *Engine) Rollback(ctx context.Context, id cube.SandboxID, im cube.ImageID) (cube.Sandbox, error) {
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
// are never two.
func (e *Engine) replace(ctx context.Context, s *sandbox, old string, src source, l keeperapi.Labels) error {
	life, err := e.bootedLife(ctx, shapeOf(src.image), l)
	if err != nil {
		return err
	}
	if err := e.stop(ctx, s, old); err != nil {
		e.endLife(life, cube.DeathKilled)
		return err
	}
	v, err := e.restoreAs(ctx, life, src, l)
	if err != nil {
		// The new life ends before the old one moves again.
		e.endLife(life, cube.DeathKilled)
		return errors.Join(err, e.goOn(s, old))
	}
	// The point of no return: requests go to the new life.
	e.switchLife(s, v, cost(src.image.PagesBytes))
	e.endLife(old, cube.DeathKilled)
	return nil
}

func (e *Engine) restoreAs(ctx context.Context, life string, src source, l keeperapi.Labels) (keeperapi.Life, error) {
	files, err := src.reopen()
	if err != nil {
		return keeperapi.Life{}, err
	}
	defer closeAll(files)
	who := identify(l.Sandbox, l.Generation, l.Identity, src.image.Limits)
	if err := e.restoreLife(ctx, life, src.image, files, who); err != nil {
		return keeperapi.Life{}, err
	}
	return e.makeCurrent(ctx, life, l)
}

// stop freezes a life and closes its egress: what it had under way must not go
// out after the new life has begun.
func (e *Engine) stop(ctx context.Context, s *sandbox, life string) error {
	if err := e.freeze(ctx, life); err != nil {
		return err
	}
	s.setState(cube.StateFrozen)
	// A life without a NIC has no egress.
	if err := e.net.FreezeEgress(ctx, life, true); err != nil && !errors.Is(err, cube.ErrNotFound) {
		return errors.Join(err, e.goOn(s, life))
	}
	return nil
}

// goOn takes stop back.
func (e *Engine) goOn(s *sandbox, life string) error {
	err := e.net.FreezeEgress(context.Background(), life, false)
	e.unfreeze(s, life)
	return err
}

// switchLife makes another life the sandbox's current one.
func (e *Engine) switchLife(s *sandbox, v keeperapi.Life, cost int64) {
	s.unfollow()
	e.mu.Lock()
	old, _, _ := s.current()
	delete(e.byLife, old)
	s.adopt(v)
	s.mu.Lock()
	s.cost = cost
	s.mu.Unlock()
	e.byLife[v.Life] = s
	e.mu.Unlock()
	e.follow(s)
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	src, err := e.openImage(ctx, im)
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s: %w", id, err)
	}
	defer src.close()
	promised, err := e.admission.reserve(e, costOf(src.image))
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s: %w", id, err)
	}
	defer promised.end()
	old, info, identity := s.current()
	l := keeperapi.Labels{Role: keeperapi.RolePending, Sandbox: id, Generation: info.Generation + 1, Image: im, Identity: identity}
	if err := e.replace(ctx, s, old, src, l); err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s to %s: %w", id, im, e.orDead(s, err))
	}
	return s.view(), nil
}

// replace puts a restored life in the place of the old one. The second sentry is
// made ready while the first runs; from freeze to switch nobody runs, so there
// are never two. After a failure the old life runs on.
func (e *Engine) replace(ctx context.Context, s *sandbox, old life, src source, labels keeperapi.Labels) error {
	l, err := e.bootedLife(ctx, src, labels)
	if err != nil {
		e.unfreeze(s, old)
		return err
	}
	// The turn to restore is waited for while the old life still runs.
	turn, err := e.takeTurn(ctx)
	if err != nil {
		e.bury(l)
		e.unfreeze(s, old)
		return err
	}
	turn = sync.OnceFunc(turn)
	defer turn()
	if err := e.stop(ctx, s, old); err != nil {
		e.bury(l)
		return err
	}
	v, err := e.restoreAs(ctx, l, src, labels, turn)
	if err != nil {
		e.giveWay(s, l, old)
		return err
	}
	// The point of no return: requests go to the new life.
	e.switchLife(s, l.k, v, costOf(src.image))
	e.passed(fpRollbackSwitched)
	e.bury(old)
	e.passed(fpRollbackBuried)
	return nil
}

func (e *Engine) restoreAs(ctx context.Context, l life, src source, labels keeperapi.Labels, turn func()) (keeperapi.Life, error) {
	if err := fpRollbackFrozen.Hit(); err != nil {
		return keeperapi.Life{}, err
	}
	files, err := src.files.Reopen()
	if err != nil {
		return keeperapi.Life{}, err
	}
	defer files.Close()
	who := identify(labels.Sandbox, labels.Generation, labels.Identity, src.image.Limits)
	if err := e.loadLife(ctx, l, src.image, files, who, turn); err != nil {
		return keeperapi.Life{}, err
	}
	if err := fpRollbackRestored.Hit(); err != nil {
		return keeperapi.Life{}, err
	}
	v, err := l.makeCurrent(ctx, labels)
	if err == nil {
		err = fpRollbackLabelled.Hit()
	}
	return v, err
}

// stop freezes a life and closes its egress: what it had under way must not go
// out after the new life has begun.
func (e *Engine) stop(ctx context.Context, s *sandbox, l life) error {
	err := l.freeze(ctx)
	if err == nil {
		s.setState(cube.StateFrozen)
		// A life without a NIC has no egress.
		if err = l.k.net.FreezeEgress(ctx, l.id, true); errors.Is(err, cube.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		e.unfreeze(s, l) // it may be frozen although the answer was lost
	}
	return err
}

// switchLife makes another life the sandbox's current one.
func (e *Engine) switchLife(s *sandbox, k *keeper, v keeperapi.Life, cost int64) {
	s.unfollow()
	old, _, _ := s.current()
	e.mu.Lock()
	delete(e.byLife, old.id)
	e.mu.Unlock()
	s.adopt(k, v)
	s.mu.Lock()
	s.cost = cost
	s.mu.Unlock()
	e.assign(s)
	e.follow(s)
}

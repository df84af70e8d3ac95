package gvisor

import (
	"context"
	"maps"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// watchKeeper sees to it that there is a keeper. When one has died, the sentries
// run on; the next takes them up, and what has ended in between is told then.
func (e *Engine) watchKeeper() {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-e.ctx.Done():
			return
		}
		rpc, err := e.keeper.connection(e.ctx)
		if err != nil {
			e.log.Error("no keeper", "error", err)
			retry.Reset(time.Second)
			continue
		}
		if err := e.resync(e.ctx); err != nil && e.ctx.Err() == nil {
			e.log.Error("the keeper's lives cannot be listed", "error", err)
		}
		select {
		case <-rpc.Done():
			e.log.Warn("the connection to the keeper is lost")
		case <-e.ctx.Done():
			return
		}
		retry.Reset(0)
	}
}

// resync reports the deaths that were missed.
func (e *Engine) resync(ctx context.Context) error {
	e.mu.Lock()
	before := maps.Clone(e.byLife) // what is made after the list was taken is not in it
	e.mu.Unlock()
	lives, err := e.keeper.lives(ctx)
	if err != nil {
		return err
	}
	for _, l := range lives {
		delete(before, l.Life)
		if l.State == keeperapi.StateDead {
			e.died(l)
		}
		if l.State == keeperapi.StatePaused && l.Labels.Role == keeperapi.RoleCurrent && !l.Detached {
			e.background(func() { e.thawIdle(l) })
		}
		if l.Detached {
			e.background(func() { e.revive(ctx, l.Labels.Sandbox) })
		}
	}
	for life, s := range before {
		e.lose(s, life)
	}
	return nil
}

// thawIdle lets a sandbox run that is frozen although no verb is at work: its verb
// could not reach the keeper when it wanted to take that back.
func (e *Engine) thawIdle(l keeperapi.Life) {
	s, err := e.lock(l.Labels.Sandbox)
	if err != nil {
		return
	}
	defer s.unlock()
	if life, _, _ := s.current(); life == l.Life {
		e.unfreeze(s, life)
	}
}

// lose marks a sandbox whose life no keeper knows of any more as dead, unless a
// verb is just ending it.
func (e *Engine) lose(s *sandbox, life string) {
	select {
	case s.verb <- struct{}{}:
		defer s.unlock()
	default:
		return
	}
	e.died(keeperapi.Life{Life: life, Death: &cube.Death{Reason: cube.DeathUnknown, Detail: "the keeper has lost its record", At: time.Now()}})
}

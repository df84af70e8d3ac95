package gvisor

import (
	"context"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// tend watches a keeper until the engine closes or, where it is of another version,
// until it has had nothing to do for a while and is sent off.
func (e *Engine) tend(k *keeper) {
	e.background(func() {
		ctx, stop := context.WithCancel(e.ctx)
		var watch sync.WaitGroup
		defer watch.Wait()
		defer stop()
		watch.Go(func() { e.watchKeeper(ctx, k) })
		if k == e.keepers.current {
			<-ctx.Done()
			return
		}
		for e.keepers.idle(ctx, k, e.conf.Linger) {
			gone, err := e.keepers.sendOff(ctx, k)
			if err != nil {
				e.log.Error("a keeper that nothing needs does not end", "engine", k.version(), "error", err)
			}
			if gone {
				e.log.Info("a keeper that nothing needs has ended", "engine", k.version())
				return
			}
		}
	})
}

// holdKeeper returns the keeper of a version, which stays until it is released.
func (e *Engine) holdKeeper(ctx context.Context, version string) (*keeper, error) {
	k, added, err := e.keepers.hold(ctx, version)
	if added {
		e.tend(k)
	}
	return k, err
}

// watchKeeper sees to it that there is a keeper. When one has died, the sentries
// run on; the next takes them up, and what has ended in between is told then.
func (e *Engine) watchKeeper(ctx context.Context, k *keeper) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		rpc, err := k.connection(ctx)
		if err != nil {
			e.log.Error("no keeper", "engine", k.version(), "error", err)
			retry.Reset(time.Second)
			continue
		}
		if err := e.resync(ctx, k); err != nil && ctx.Err() == nil {
			e.log.Error("the keeper's lives cannot be listed", "error", err)
		}
		select {
		case <-rpc.Done():
			e.log.Warn("the connection to the keeper is lost", "engine", k.version())
		case <-ctx.Done():
			return
		}
		retry.Reset(0)
	}
}

// resync reports the deaths that were missed.
func (e *Engine) resync(ctx context.Context, k *keeper) error {
	before := e.livesOf(k) // what is made after the list was taken is not in it
	lives, err := k.lives(ctx)
	if err != nil {
		return err
	}
	for _, l := range lives {
		delete(before, l.Life)
		if l.State == keeperapi.StateDead {
			e.died(l)
		}
		if l.State == keeperapi.StatePaused && l.Labels.Role == keeperapi.RoleCurrent && !l.Detached {
			if s, err := e.find(l.Labels.Sandbox); err == nil {
				e.background(func() { e.thawFrom(s, life{l.Life, k}, 0) })
			}
		}
		if l.Detached {
			e.background(func() { e.revive(ctx, l.Labels.Sandbox) })
		}
	}
	for id, s := range before {
		e.lose(s, id)
	}
	return nil
}

// livesOf are the current lives that a keeper has, with whose they are.
func (e *Engine) livesOf(k *keeper) map[string]*sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]*sandbox{}
	for id, s := range e.byLife {
		if l, _, _ := s.current(); l.id == id && l.k == k {
			out[id] = s
		}
	}
	return out
}

// lose marks a sandbox whose life no keeper knows of any more as dead, unless a
// verb is just ending it.
func (e *Engine) lose(s *sandbox, id string) {
	select {
	case s.verb <- struct{}{}:
		defer s.unlock()
	default:
		return
	}
	e.died(keeperapi.Life{Life: id, Death: &cube.Death{Reason: cube.DeathUnknown, Detail: "the keeper has lost its record", At: time.Now()}})
}

package gvisor

import (
	"context"
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
	lives, err := e.keeper.lives(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, l := range lives {
		seen[l.Life] = true
		if l.State == keeperapi.StateDead {
			e.died(l)
		}
	}
	// A life that no keeper knows of any more has left no record of its end.
	e.mu.Lock()
	var lost []string
	for life, s := range e.byLife {
		if !seen[life] && s.view().State != cube.StateDead {
			lost = append(lost, life)
		}
	}
	e.mu.Unlock()
	for _, life := range lost {
		e.died(keeperapi.Life{Life: life, Death: &cube.Death{Reason: cube.DeathUnknown, Detail: "the keeper has lost its record", At: time.Now()}})
	}
	return nil
}

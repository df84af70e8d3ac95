package gvisor

import (
	"context"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// Kill implements cube.Engine.
func (e *Engine) Kill(ctx context.Context, id cube.SandboxID) error {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return e.kill(ctx, id)
}

// kill is Kill within another verb.
func (e *Engine) kill(ctx context.Context, id cube.SandboxID) error {
	s, err := e.find(id)
	if err != nil {
		return err
	}
	defer s.hurry()()
	select {
	case s.verb <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("kill %s: another verb is at work: %w", id, ctx.Err())
	}
	defer s.unlock()
	s.mu.Lock()
	gone, l := s.gone, s.life
	s.gone = true // its end is no news
	s.mu.Unlock()
	if gone {
		return fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	}
	if err := e.endLife(l, cube.DeathKilled); err != nil {
		s.mu.Lock()
		s.gone = false
		s.mu.Unlock()
		return fmt.Errorf("kill %s: %w", id, err)
	}
	e.remove(s)
	e.passed(fpKillEnded)
	return nil
}

// died is called for every life that has ended, in the order in which they did.
func (e *Engine) died(l keeperapi.Life) {
	e.mu.Lock()
	s := e.byLife[l.Life]
	if s == nil && l.Labels.Role != keeperapi.RolePool {
		e.dead[l.Life] = l // it may be about to be entered
	}
	e.mu.Unlock()
	if s == nil {
		e.pools.lost(l.Life)
		return
	}
	s.mu.Lock()
	if s.kept && s.life.id == l.Life {
		s.untold = &l
		s.mu.Unlock()
		return
	}
	expected := s.gone || s.life.id != l.Life || s.info.State == cube.StateDead
	if !expected {
		s.info.State = cube.StateDead
		s.info.Death = l.Death
		s.dropSpare()
	}
	gen := s.info.Generation
	s.mu.Unlock()
	if expected || l.Death == nil {
		return
	}
	s.unfollow()
	e.log.Warn("sandbox died", "sandbox", s.id, "reason", l.Death.Reason, "detail", l.Death.Detail)
	if l.Death.Reason != cube.DeathKilled {
		e.events.send(cube.Event{Kind: cube.EventDied, Sandbox: s.id, Generation: gen, At: l.Death.At, Detail: l.Death.Detail, Death: l.Death})
	}
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	cube "cubesandbox"
)

// againTime is how long after a failure something that must be done is tried again.
const againTime = time.Second

// unfreeze lets a life run on after a verb has failed, with its egress, whatever
// became of the verb's context. Where that cannot be done now, the sandbox stays
// frozen, and it is tried again until it runs.
func (e *Engine) unfreeze(s *sandbox, l life) {
	if !e.runOn(s, l) {
		e.background(func() { e.thawFrom(s, l, againTime) })
	}
}

// runOn lets a life run, and reports whether there is nothing left to try.
func (e *Engine) runOn(s *sandbox, l life) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.resumeLife(ctx, l); err != nil {
		s.setState(cube.StateFrozen)
		e.log.Error("a sandbox does not run on", "sandbox", s.id, "life", l.id, "error", err)
		return errors.Is(err, cube.ErrDead)
	}
	s.setState(cube.StateRunning)
	return true
}

// thawFrom has thawIdle try until there is nothing left to try, for the first time
// after a while.
func (e *Engine) thawFrom(s *sandbox, l life, first time.Duration) {
	retry := time.NewTimer(first)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-e.ctx.Done():
			return // the next engine lets it run
		}
		if e.thawIdle(s, l) {
			return
		}
		retry.Reset(againTime)
	}
}

// thawIdle lets a sandbox run that is frozen although no verb is at work, and reports
// whether there is nothing left to try: its verb could not reach the keeper when it
// wanted to take that back. One that waits for the end of another life is let run by
// whoever ends that.
func (e *Engine) thawIdle(s *sandbox, l life) bool {
	select {
	case s.verb <- struct{}{}:
		defer s.unlock()
	case <-e.ctx.Done():
		return true
	}
	s.mu.Lock()
	idle := !s.gone && s.info.State != cube.StateDead && s.life == l && s.way == nil
	s.mu.Unlock()
	return !idle || e.runOn(s, l)
}

// giveWay ends the new life and then lets the old one run on. Where the new one
// cannot be ended now, the old one waits: two must never run.
func (e *Engine) giveWay(s *sandbox, l, old life) {
	if e.endLife(l, cube.DeathKilled) == nil {
		e.unfreeze(s, old)
		return
	}
	s.setState(cube.StateFrozen)
	e.endFirst(s, []life{l}, func() { e.thawFrom(s, old, 0) })
}

// endFirst keeps a sandbox that is frozen so until other lives of it have ended, and then calls
// then. Meanwhile no verb but a kill begins on it.
func (e *Engine) endFirst(s *sandbox, others []life, then func()) {
	way := make(chan struct{})
	s.mu.Lock()
	s.way = way
	s.mu.Unlock()
	e.background(func() {
		for _, l := range others {
			if !e.endSurely(l) {
				return // the next engine ends it before it lets this one run
			}
		}
		s.mu.Lock()
		s.way = nil
		s.mu.Unlock()
		close(way)
		then()
	})
}

// notAlone is what a verb gets that begins meanwhile.
func notAlone(id cube.SandboxID) error {
	return fmt.Errorf("sandbox %s: a former life of it has not ended yet: %w", id, cube.ErrUnavailable)
}

// lockAlone waits for its turn as a verb, and until no other life of the sandbox is
// left; false when ctx ends first.
func (s *sandbox) lockAlone(ctx context.Context) bool {
	for {
		select {
		case s.verb <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		s.mu.Lock()
		way := s.way
		s.mu.Unlock()
		if way == nil {
			return true
		}
		s.unlock()
		select {
		case <-way:
		case <-ctx.Done():
			return false
		}
	}
}

// bury ends a life that must not be, in the background and again until it is so.
func (e *Engine) bury(l life) {
	if e.endLife(l, cube.DeathKilled) != nil {
		e.background(func() { e.endSurely(l) })
	}
}

// endSurely ends a life, again until it is so; false when the engine closes first.
func (e *Engine) endSurely(l life) bool {
	retry := time.NewTimer(againTime)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
		case <-e.ctx.Done():
			return false // the next engine finds it
		}
		if e.endLife(l, cube.DeathKilled) == nil {
			return true
		}
		retry.Reset(againTime)
	}
}

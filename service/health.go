package service

import (
	"context"
	"errors"
	"time"

	cube "cubesandbox"
)

const (
	// askTime is how long an agent may take to say how it is.
	askTime = 3 * time.Second
	// askPause is how long after an answer an agent is not asked again: whoever has a
	// doubt then has got it from before.
	askPause = time.Second
	// One that is unhealthy is asked again after askAgain, then after twice as long, and
	// so on up to askSeldom. The others are asked only where somebody has a doubt: an
	// idle sandbox is not woken.
	askAgain  = time.Second
	askSeldom = 5 * time.Second
	// mostUnknown is how many questions in a row that tell nothing a doubt gets (a verb was
	// at work, the keeper was just started again): with their pauses some 20 s.
	mostUnknown = 6
)

// health is what is known of a sandbox's agent. The box's mu guards it.
type health struct {
	asking   bool
	answered time.Time       // when it was last well
	in       cube.Generation // in which sick was found out
	sick     *cube.Unhealthy // nil: nothing is wrong, as far as is known
}

// Doubt implements cube.Service.
func (s *Service) Doubt(id cube.SandboxID, gen cube.Generation) {
	b, err := s.find(id)
	if err != nil || !b.doubt(gen) {
		return
	}
	if !s.spawn(func() { s.diagnose(b) }) {
		b.examined()
	}
}

// doubt reports whether somebody is to ask, who then calls examined.
func (b *box) doubt(gen cube.Generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &b.health
	if h.asking || b.gone || b.rec.Phase != cube.PhaseRunning || gen < b.rec.Generation || time.Since(h.answered) < askPause {
		return false
	}
	h.asking = true
	return true
}

func (b *box) examined() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health.asking = false
}

// diagnose asks the agent of a sandbox until it is well, or its life is over, or it cannot
// be found out whether anything is wrong.
func (s *Service) diagnose(b *box) {
	defer b.examined()
	again := time.NewTimer(0)
	defer again.Stop()
	unknown := 0
	for wait := askAgain; ; wait = min(2*wait, askSeldom) {
		select {
		case <-again.C:
		case <-b.over:
			return
		case <-s.ctx.Done():
			return
		}
		gen, err := s.askAgent(b.id)
		if s.ctx.Err() != nil {
			return // what went wrong may be that
		}
		unknown++
		switch {
		case errors.Is(err, cube.ErrAgent):
			unknown = 0
			if b.sicken(gen, err.Error()) {
				s.log.Warn("a sandbox is unhealthy", "sandbox", b.id, "generation", gen, "reason", err)
			}
		case err == nil:
			if b.heal() {
				s.log.Info("a sandbox is no longer unhealthy", "sandbox", b.id, "generation", gen)
			}
			return
		case errors.Is(err, cube.ErrNotFound), errors.Is(err, cube.ErrDead):
			return // there is nobody to be asked
		case unknown >= mostUnknown && !b.isSick():
			s.log.Debug("it cannot be found out how a sandbox is", "sandbox", b.id, "error", err)
			return // the next doubt begins again
		}
		again.Reset(wait)
	}
}

// askAgent asks an agent once, and says in which generation.
func (s *Service) askAgent(id cube.SandboxID) (cube.Generation, error) {
	ctx, cancel := context.WithTimeout(s.ctx, askTime)
	defer cancel()
	sb, err := s.engine.Sandbox(ctx, id)
	if err != nil {
		return 0, err
	}
	return sb.Generation, s.engine.Ask(ctx, id)
}

// sicken notes what is wrong, and reports whether that is news.
func (b *box) sicken(gen cube.Generation, reason string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &b.health
	if h.sick != nil && h.in == gen && h.sick.Reason == reason {
		return false
	}
	since := time.Now()
	if h.sick != nil && h.in == gen {
		since = h.sick.Since
	} else {
		news = true
	}
	h.in, h.sick = gen, &cube.Unhealthy{Reason: reason, Since: since}
	return news
}

// heal notes that the agent is well, and reports whether that is news.
func (b *box) heal() (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news = b.health.sick != nil
	b.health.sick, b.health.answered = nil, time.Now()
	return news
}

func (b *box) isSick() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.health.sick != nil
}

// unhealthy is what is wrong in the life that the record is of. mu is held.
func (b *box) unhealthy() *cube.Unhealthy {
	if b.health.sick == nil || b.rec.Phase != cube.PhaseRunning || b.health.in < b.rec.Generation {
		return nil
	}
	return b.health.sick
}

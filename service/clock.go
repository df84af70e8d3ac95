package service

import (
	"context"
	"fmt"
	"time"

	cube "cubesandbox"
)

// retryAfter is how long a sandbox whose time is over, and which could not be paused
// or killed, is let be before that is tried again.
const retryAfter = 30 * time.Second

func checkTimeout(d time.Duration) error {
	if d <= 0 && d != cube.NeverTimeout {
		return fmt.Errorf("timeout %v: it must be above 0, or never: %w", d, cube.ErrInvalid)
	}
	return nil
}

// endFrom is when a timeout that begins now is over; zero for never.
func endFrom(now time.Time, d time.Duration) time.Time {
	if d == cube.NeverTimeout {
		return time.Time{}
	}
	return now.Add(d)
}

// arm sets the timer by the record. The caller has the turn.
func (s *Service) arm(b *box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	end := b.end()
	if end.Before(b.retryAt) && !end.IsZero() {
		end = b.retryAt
	}
	if end.IsZero() || b.rec.Phase != cube.PhaseRunning || b.gone || s.ctx.Err() != nil {
		return
	}
	b.timer = time.AfterFunc(time.Until(end), func() { s.spawn(func() { s.expire(b) }) })
}

func (b *box) disarm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// expire does what is to happen when a sandbox's time is over, if it is.
func (s *Service) expire(b *box) {
	if s.ctx.Err() != nil {
		return
	}
	b, err := s.turnOf(s.ctx, b.id)
	if err != nil {
		return
	}
	defer b.leave()
	end, now := b.record().EndAt, time.Now()
	if b.rec.Phase != cube.PhaseRunning || end.IsZero() || now.Before(end) || now.Before(b.retryAt) {
		s.arm(b)
		return
	}
	// What fails now is tried again then.
	b.retry(now.Add(retryAfter))
	ctx := context.WithoutCancel(s.ctx)
	if b.rec.OnTimeout == cube.OnTimeoutPause {
		s.log.Info("time is over, pausing", "sandbox", b.id)
		err = s.pause(ctx, b, cube.Pausing{})
	} else if b.condemn() { // with the turn: nobody gets more time in between
		s.log.Info("time is over", "sandbox", b.id)
		err = s.execute(ctx, b, cube.DeathTimeout)
	}
	if err == nil {
		b.retry(time.Time{}) // a resume has a time of its own
	} else {
		s.log.Error("a sandbox whose time is over could not be ended or paused; it is tried again", "sandbox", b.id, "after", retryAfter, "error", err)
		s.arm(b) // it may have failed before it had begun
	}
}

// SetTimeout implements cube.Service.
func (s *Service) SetTimeout(ctx context.Context, id cube.SandboxID, d time.Duration) error {
	if err := checkTimeout(d); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return err
	}
	defer b.leave()
	return s.retime(ctx, b, func(r *cube.Record) {
		r.Timeout = d
		if r.Phase == cube.PhaseRunning {
			r.EndAt = endFrom(time.Now(), d)
		}
	})
}

// Refresh implements cube.Service.
func (s *Service) Refresh(ctx context.Context, id cube.SandboxID, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("sandbox %s: refresh by %v: %w", id, d, cube.ErrInvalid)
	}
	b, err := s.turnOf(ctx, id)
	if err != nil {
		return err
	}
	defer b.leave()
	return s.retime(ctx, b, func(r *cube.Record) { extend(r, d) })
}

// extend moves the end to at least d from now.
func extend(r *cube.Record, d time.Duration) {
	if r.Phase != cube.PhaseRunning || r.EndAt.IsZero() {
		return
	}
	if end := endFrom(time.Now(), d); end.IsZero() || end.After(r.EndAt) {
		r.EndAt = end
	}
}

// retime changes when a sandbox's time is over.
func (s *Service) retime(ctx context.Context, b *box, change func(*cube.Record)) error {
	if err := s.put(ctx, b, change); err != nil {
		return err
	}
	b.retry(time.Time{})
	s.arm(b)
	return nil
}

// retry notes before when a timeout that failed is not tried again. The caller has
// the turn.
func (b *box) retry(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryAt = at
}

// Touch implements cube.Service.
func (s *Service) Touch(id cube.SandboxID) (done func()) {
	b, err := s.find(id)
	if err != nil {
		return func() {}
	}
	b.mu.Lock()
	b.streams++
	b.last = time.Now()
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		b.streams--
		b.last = time.Now()
		b.mu.Unlock()
	}
}

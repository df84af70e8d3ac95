package service

import (
	"context"
	"errors"

	cube "cubesandbox"
)

// follow hears what happens to sandboxes by itself.
func (s *Service) follow(events <-chan cube.Event) {
	for {
		for ev := range events {
			s.heard(ev)
		}
		if s.ctx.Err() != nil {
			return
		}
		// We were too slow and have missed some.
		events = s.engine.Events(s.ctx)
		s.lookForDead()
		if s.ctx.Err() != nil {
			return
		}
	}
}

func (s *Service) heard(ev cube.Event) {
	switch ev.Kind {
	case cube.EventDied:
		s.spawn(func() { s.died(ev.Sandbox) })
	case cube.EventHook:
		s.log.Info("inside a sandbox", "sandbox", ev.Sandbox, "event", ev.Kind, "detail", ev.Detail)
	case cube.EventOOM, cube.EventInitDied, cube.EventHookFailed:
		s.log.Warn("inside a sandbox", "sandbox", ev.Sandbox, "event", ev.Kind, "detail", ev.Detail)
	case cube.EventFilesOnly:
		s.log.Warn("a sandbox came back from its files, without its memory", "sandbox", ev.Sandbox, "event", ev.Kind, "detail", ev.Detail)
	}
}

func (s *Service) lookForDead() {
	all, err := s.engine.Sandboxes(s.ctx)
	if err != nil {
		s.log.Error("the engine does not say what runs", "error", err)
		return
	}
	for _, sb := range all {
		if sb.State == cube.StateDead {
			s.spawn(func() { s.died(sb.ID) })
		}
	}
}

// died records why a sandbox is dead, and frees what it held.
func (s *Service) died(id cube.SandboxID) {
	b, err := s.turnOf(s.ctx, id)
	if err != nil {
		return // a kill is at work, or was
	}
	defer b.leave()
	s.mourn(context.WithoutCancel(s.ctx), b)
}

// mourn ends a sandbox that the engine says is dead. The caller has the turn.
func (s *Service) mourn(ctx context.Context, b *box) (dead bool) {
	sb, err := s.engine.Sandbox(ctx, b.id)
	if err != nil || sb.State != cube.StateDead || sb.Death == nil {
		return false
	}
	s.lose(ctx, b, *sb.Death)
	return true
}

// lose records that a sandbox is no more without anybody having asked for it, and
// offers it for recovery, unless somebody was just about to kill it. The caller has the
// turn.
func (s *Service) lose(ctx context.Context, b *box, why cube.Death) {
	was := b.rec
	last, way := s.testament(was, why)
	b.mu.Lock()
	doomed := b.doomed
	b.mu.Unlock()
	if doomed {
		last, way = epitaph(was, why), ""
	}
	auto := last.Recoverable && last.AutoRecover
	s.log.Warn("a sandbox has died", "sandbox", b.id, "phase", was.Phase, "reason", why.Reason, "detail", why.Detail, "recovery", way)
	if auto {
		s.mu.Lock()
		s.returning[b.id] = true
		s.mu.Unlock()
	}
	if err := s.finish(ctx, b, &work{}, was.Phase != cube.PhasePaused, last); err != nil {
		s.log.Error("the end of a sandbox could not be recorded; the next start does", "sandbox", b.id, "error", err)
	}
	if was.Image != "" {
		s.deleteImage(was.Image, b.id)
	}
	if err := s.release(was.Template); err != nil {
		s.log.Error("an image that nothing needs stays until the next collection", "image", was.Template, "error", err)
	}
	if auto {
		s.spawn(func() { s.autoRecover(last) })
	}
}

// orDead makes the error of a verb that found its sandbox dead say so.
func (s *Service) orDead(ctx context.Context, b *box, err error) error {
	if !errors.Is(err, cube.ErrDead) || !s.mourn(context.WithoutCancel(ctx), b) {
		return err
	}
	_, err = s.find(b.id)
	return err
}

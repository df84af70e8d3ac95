package gvisor

import (
	"context"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// revive gives a sandbox whose NIC is lost a new life, from its own state of this
// moment: nothing inside is lost but connections.
func (e *Engine) revive(ctx context.Context, id cube.SandboxID) {
	s, err := e.find(id)
	if err != nil {
		return
	}
	// A verb may be at work, and just about to find out that it cannot go on.
	if !s.lockAlone(ctx) {
		return
	}
	defer s.unlock()
	if s.mu.Lock(); s.gone || s.info.State == cube.StateDead {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if err := e.reviveLocked(ctx, s); err != nil {
		e.log.Error("a sandbox without a network could not be brought back", "sandbox", id, "error", err)
		return
	}
	e.log.Warn("a sandbox had lost its network and goes on in a new life", "sandbox", id, "generation", s.view().Generation)
}

func (e *Engine) reviveLocked(ctx context.Context, s *sandbox) error {
	old, info, identity := s.current()
	u, err := old.usage(ctx)
	if err != nil {
		return err
	}
	promised, err := e.admission.reserve(e, cost(u.CommittedBytes))
	if err != nil {
		return err
	}
	defer promised.end()
	// Frozen first: what it did between save and switch would be undone.
	if err := e.stop(ctx, s, old); err != nil {
		return err
	}
	src, err := e.unnamed(ctx, s)
	if err != nil {
		e.unfreeze(s, old)
		return fmt.Errorf("save its state: %w", err)
	}
	defer src.close()
	l := keeperapi.Labels{Role: keeperapi.RolePending, Sandbox: s.id, Generation: info.Generation + 1, Image: info.Image, Identity: identity}
	return e.replace(ctx, s, old, src, l)
}

// unnamed saves a sandbox to files that no name leads to.
func (e *Engine) unnamed(ctx context.Context, s *sandbox) (source, error) {
	w, err := e.saveTo(ctx, s, cube.NewSnapshotID())
	if err != nil {
		return source{}, err
	}
	keep := w.Keep
	if l, _, _ := s.current(); l.k.info.Shares {
		keep = w.KeepBase
	}
	files, err := keep()
	if err != nil {
		return source{}, err
	}
	im := e.describe(s, cube.KindSnapshot)
	had := files.Image
	im.PagesBytes, im.Base, im.Bases, im.SharedBytes = had.PagesBytes, had.Base, had.Bases, had.SharedBytes
	return e.sourceOf(ctx, im, files)
}

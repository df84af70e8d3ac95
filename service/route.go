package service

import (
	"context"
	"errors"
	"fmt"
	"net"

	cube "cubesandbox"
)

// Route implements cube.Service.
func (s *Service) Route(ctx context.Context, id cube.SandboxID) (cube.Route, error) {
	s.mu.RLock()
	b, there := s.boxes[id]
	old, ended := s.ended[id]
	returning := s.returning[id]
	s.mu.RUnlock()
	if ended && !there && returning {
		return cube.Route{ID: id, Generation: old.Generation, Phase: cube.PhaseRecovering}, nil
	}
	if ended && !there {
		return cube.Route{ID: id, Generation: old.Generation, Phase: cube.PhaseEnded, End: old.End}, nil
	}
	if !there {
		return cube.Route{}, fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	}
	r := b.route()
	if r.Phase != cube.PhaseRunning {
		return r, nil
	}
	// The engine gives a sandbox another life by itself where its network is lost.
	sb, err := s.engine.Sandbox(ctx, id)
	if errors.Is(err, cube.ErrNotFound) {
		return r, nil // a verb has just ended this life; dialing says so
	}
	if err != nil {
		return cube.Route{}, err
	}
	r.Generation = sb.Generation
	return r, nil
}

// Usage implements cube.Service.
func (s *Service) Usage(ctx context.Context, id cube.SandboxID) (cube.Usage, error) {
	b, err := s.find(id)
	if err != nil {
		return cube.Usage{}, err
	}
	if phase := b.route().Phase; seen(phase) != cube.PhaseRunning {
		return cube.Usage{}, fmt.Errorf("usage: sandbox %s is %s: %w", id, phase, cube.ErrConflict)
	}
	return s.engine.Usage(ctx, id)
}

func (b *box) route() cube.Route {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := cube.Route{
		ID: b.id, Generation: b.rec.Generation, Phase: b.rec.Phase, AutoResume: b.rec.AutoResume,
		AccessToken: b.rec.Identity.AccessToken, TrafficToken: b.rec.TrafficToken, MaskHost: b.mask,
	}
	if b.doomed {
		r.Phase = cube.PhaseKilling
	}
	return r
}

// Wake implements cube.Service.
func (s *Service) Wake(ctx context.Context, id cube.SandboxID) (cube.Route, error) {
	r, err := s.Route(ctx, id)
	if err != nil || r.Phase == cube.PhaseRunning {
		return r, err
	}
	if !r.AutoResume {
		return r, fmt.Errorf("sandbox %s is %s and does not resume by itself; connect to it: %w", id, r.Phase, cube.ErrConflict)
	}
	if _, _, err := s.Connect(ctx, id, cube.Resumption{}); err != nil {
		return r, err
	}
	return s.Route(ctx, id)
}

// ByToken implements cube.Service.
func (s *Service) ByToken(fits func(token string) bool) (cube.SandboxID, bool) {
	var found cube.SandboxID
	for _, b := range s.all() {
		if r := b.route(); r.AccessToken != "" && fits(r.AccessToken) {
			found = b.id
		}
	}
	return found, found != ""
}

// Dial implements cube.Service.
func (s *Service) Dial(ctx context.Context, id cube.SandboxID, gen cube.Generation, port uint16) (net.Conn, error) {
	return s.engine.Dial(ctx, id, gen, port)
}

// Phases counts sandboxes by phase.
func (s *Service) Phases() map[string]int {
	out := map[string]int{}
	for _, b := range s.all() {
		out[string(b.route().Phase)]++
	}
	return out
}

package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// secretBytes is how much chance is in a token.
const secretBytes = 32

func newToken() string {
	b := make([]byte, secretBytes)
	rand.Read(b) // never fails: it ends the program instead
	return hex.EncodeToString(b)
}

// Create implements cube.Service.
func (s *Service) Create(ctx context.Context, n cube.NewSandbox) (cube.Record, error) {
	src, err := s.resolve(n.Template)
	if err != nil {
		return cube.Record{}, err
	}
	if err := checkTimeout(n.Timeout); err != nil {
		return cube.Record{}, err
	}
	r := newRecord(n, src)
	release, err := s.cpus.reserve(r.Limits.CPUs)
	if err != nil {
		return cube.Record{}, fmt.Errorf("create a sandbox of %s: %w", n.Template, err)
	}
	if err := s.write(ctx, r); err != nil {
		release()
		s.drop(ctx, r.ID) // a context that ends does not say what has become of it
		return cube.Record{}, err
	}
	made, err := s.engineCreate(ctx, cube.CreateSpec{ID: r.ID, Identity: r.Identity, Image: src.image})
	if err != nil {
		release()
		s.drop(ctx, r.ID)
		return cube.Record{}, fmt.Errorf("create a sandbox of %s: %w", n.Template, err)
	}
	rs, err := s.appear(ctx, []cube.Record{r}, []cube.Sandbox{made})
	if err != nil {
		release()
		return cube.Record{}, fmt.Errorf("create a sandbox of %s: %w", n.Template, err)
	}
	return rs[0], nil
}

func (s *Service) engineCreate(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	defer timing.Phase(ctx, "engine")()
	return s.engine.Create(ctx, spec)
}

// newRecord is what a sandbox is that is about to be made.
func newRecord(n cube.NewSandbox, src source) cube.Record {
	now := time.Now()
	r := cube.Record{
		ID: cube.NewSandboxID(), Generation: 1, Phase: cube.PhaseCreating,
		Template: src.image, Alias: src.alias, Parent: src.parent, Limits: src.limits,
		Identity: cube.Identity{Env: merged(src.env, n.Env), User: n.User},
		Metadata: n.Metadata, Clock: n.Clock, Timeout: n.Timeout, OnTimeout: n.OnTimeout, AutoResume: n.AutoResume,
		AllowInternet: n.AllowInternet, Network: n.Network, MCP: n.MCP,
		StartedAt: now, ChangedAt: now,
	}
	if r.Clock == "" {
		r.Clock = cube.ClockAbsolute
	}
	if r.OnTimeout == "" {
		r.OnTimeout = cube.OnTimeoutKill
	}
	if !n.Open {
		r.Identity.AccessToken = newToken()
	}
	if n.Private {
		r.TrafficToken = newToken()
	}
	return r
}

// merged is over, upon what is below; nil where there is nothing.
func merged(below, over map[string]string) map[string]string {
	if len(below) == 0 {
		return over
	}
	m := maps.Clone(below)
	maps.Copy(m, over)
	return m
}

// drop forgets a sandbox that was never there.
func (s *Service) drop(ctx context.Context, id cube.SandboxID) {
	if err := s.store.DeleteSandbox(context.WithoutCancel(ctx), id); err != nil {
		s.log.Error("the record of a sandbox that could not be made stays until the next start", "sandbox", id, "error", err)
	}
}

// Clone implements cube.Service.
func (s *Service) Clone(ctx context.Context, id cube.SandboxID, c cube.Cloning) ([]cube.Record, error) {
	if c.N < 1 || c.N > 100 {
		return nil, fmt.Errorf("clone %s: %d clones; 1 to 100 can be made at once: %w", id, c.N, cube.ErrInvalid)
	}
	if c.Timeout != 0 {
		if err := checkTimeout(c.Timeout); err != nil {
			return nil, err
		}
	}
	b, err := s.runner(ctx, id, "clone")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	release, err := s.cpus.reserve(c.N * b.rec.Limits.CPUs)
	if err != nil {
		return nil, fmt.Errorf("clone %s: %w", id, err)
	}
	rs := clones(b.rec, c)
	if err := s.write(ctx, rs...); err != nil {
		release()
		for _, r := range rs {
			s.drop(ctx, r.ID)
		}
		return nil, err
	}
	made, err := s.engineClone(ctx, id, rs, c.Concurrency)
	if err == nil {
		if rs, err = s.appear(ctx, rs, made); err != nil {
			release()
			return nil, fmt.Errorf("clone %s: %w", id, err)
		}
		return rs, nil
	}
	release()
	for _, r := range rs {
		s.drop(ctx, r.ID)
	}
	return nil, s.orDead(ctx, b, fmt.Errorf("clone %s: %w", id, err))
}

func (s *Service) engineClone(ctx context.Context, id cube.SandboxID, rs []cube.Record, limit int) ([]cube.Sandbox, error) {
	defer timing.Phase(ctx, "engine")()
	specs := make([]cube.CreateSpec, len(rs))
	for i, r := range rs {
		specs[i] = cube.CreateSpec{ID: r.ID, Identity: r.Identity}
	}
	return s.engine.Clone(ctx, id, specs, limit)
}

// clones are the records of copies: everything is the source's but what a copy
// must not share.
func clones(src cube.Record, c cube.Cloning) []cube.Record {
	rs := make([]cube.Record, c.N)
	now := time.Now()
	for i := range rs {
		r := src
		r.ID, r.Parent, r.Generation, r.Phase = cube.NewSandboxID(), src.ID, 1, cube.PhaseCreating
		r.StartedAt, r.ChangedAt, r.EndAt = now, now, time.Time{}
		r.Identity.Hostname = ""
		if c.Timeout != 0 {
			r.Timeout = c.Timeout
		}
		if src.Identity.AccessToken != "" {
			r.Identity.AccessToken = newToken()
		}
		if src.TrafficToken != "" {
			r.TrafficToken = newToken()
		}
		rs[i] = r
	}
	return rs
}

// appear makes what the engine has made sandboxes that can be found, all at once: a
// crash finds all or none. Their time begins now. Where that cannot be recorded, or
// nobody will ever hear of them, they are ended, and there are none.
func (s *Service) appear(ctx context.Context, rs []cube.Record, made []cube.Sandbox) ([]cube.Record, error) {
	now := time.Now()
	for i := range rs {
		rs[i].Phase, rs[i].Generation, rs[i].ChangedAt = cube.PhaseRunning, made[i].Generation, now
		rs[i].EndAt = endFrom(now, rs[i].Timeout)
	}
	err := ctx.Err()
	if err == nil {
		err = s.write(context.WithoutCancel(ctx), rs...)
	}
	if err != nil {
		for _, r := range rs {
			s.bury(context.WithoutCancel(ctx), r.ID)
			s.drop(ctx, r.ID)
		}
		return nil, err
	}
	for _, r := range rs {
		b := newBox(r)
		b.enter()
		s.mu.Lock()
		s.boxes[r.ID], s.order = b, nil
		s.mu.Unlock()
		s.arm(b)
		b.leave()
		// It may have died before it could be found.
		s.spawn(func() { s.died(r.ID) })
	}
	return rs, nil
}

package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
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
func (s *Service) Create(ctx context.Context, n cube.NewSandbox) (r cube.Record, err error) {
	asked := n
	asked.Key = ""
	err = s.once(ctx, n.Key, cube.VerbCreate, asked, func(p cube.Plan) error {
		r, err = s.create(ctx, p, n)
		return err
	}, func(a cube.Answer) error {
		rs, err := s.made(ctx, a)
		if err == nil {
			r = rs[0]
		}
		return err
	})
	return r, err
}

func (s *Service) create(ctx context.Context, p cube.Plan, n cube.NewSandbox) (cube.Record, error) {
	src, err := s.resolve(n.Template)
	if err != nil {
		return cube.Record{}, err
	}
	if err := checkTimeout(n.Timeout); err != nil {
		return cube.Record{}, err
	}
	r := newRecord(n, src)
	p.Sandbox = r.ID
	w := s.making(p, []cube.Record{r}, func(ctx context.Context) error {
		_, err := s.engineCreate(ctx, cube.CreateSpec{ID: r.ID, Identity: r.Identity, Image: src.image})
		return err
	})
	rs, err := s.make(ctx, w, []cube.Record{r})
	if err != nil {
		return cube.Record{}, fmt.Errorf("create a sandbox of %s: %w", n.Template, err)
	}
	return rs[0], nil
}

// made returns the sandboxes of an answer, those that have ended since excepted. When
// all have, the error says so of one.
func (s *Service) made(ctx context.Context, a cube.Answer) ([]cube.Record, error) {
	var rs []cube.Record
	var last error
	for _, id := range a.Sandboxes {
		r, err := s.Get(ctx, id)
		if err != nil {
			last = err
			continue
		}
		rs = append(rs, r)
	}
	if len(rs) == 0 {
		return nil, last
	}
	return rs, nil
}

// make carries out the making of sandboxes and returns them as they then are.
func (s *Service) make(ctx context.Context, w *work, rs []cube.Record) ([]cube.Record, error) {
	cpus := 0
	for _, r := range rs {
		cpus += r.Limits.CPUs
	}
	release, err := s.cpus.reserve(cpus)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx, w, cube.Batch{Sandboxes: rs}); err != nil {
		release()
		return nil, err
	}
	if err := s.run(ctx, w); err != nil {
		release()
		return nil, err
	}
	for _, r := range w.made {
		b, err := s.find(r.ID)
		if err != nil {
			continue // somebody who has seen it in the list has killed it
		}
		b.enter()
		s.arm(b)
		b.leave()
		// It may have died before it could be found.
		s.spawn(func() { s.died(r.ID) })
	}
	return w.made, nil
}

// making is the work of create and clone: sandboxes recorded as creating, made by the
// engine, and recorded as running, all at once: a crash finds all or none. Without a
// key a start ends what it finds, for nobody has heard of it; with one, whoever asks
// again gets it.
func (s *Service) making(p cube.Plan, rs []cube.Record, do func(context.Context) error) *work {
	w := &work{Plan: p, from: never}
	if p.Key != "" {
		w.from = 1
	}
	w.steps = []step{
		{name: "make", do: do, undo: func(ctx context.Context) {
			for _, r := range rs {
				s.bury(ctx, r.ID)
			}
		}, done: func(ctx context.Context) bool {
			for _, r := range rs {
				if !s.alive(ctx, r.ID) {
					return false
				}
			}
			return true
		}},
		{name: "record", do: func(ctx context.Context) error { return s.appear(ctx, w, rs) }},
	}
	w.back = func(ctx context.Context) error {
		return s.apply(ctx, s.unanswered(w, cube.Batch{DropSandboxes: ids(rs)}))
	}
	return w
}

func ids(rs []cube.Record) []cube.SandboxID {
	out := make([]cube.SandboxID, len(rs))
	for i, r := range rs {
		out[i] = r.ID
	}
	return out
}

// alive reports whether the engine has it, and it is not dead.
func (s *Service) alive(ctx context.Context, id cube.SandboxID) bool {
	sb, err := s.engine.Sandbox(ctx, id)
	return err == nil && sb.State != cube.StateDead
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
		AutoRecover: n.AutoRecover, FilesFallback: n.FilesFallback, AllowInternet: n.AllowInternet, Network: n.Network, MCP: n.MCP,
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

// Clone implements cube.Service.
func (s *Service) Clone(ctx context.Context, id cube.SandboxID, c cube.Cloning) (rs []cube.Record, err error) {
	if c.N < 1 || c.N > 100 {
		return nil, fmt.Errorf("clone %s: %d clones; 1 to 100 can be made at once: %w", id, c.N, cube.ErrInvalid)
	}
	if c.Timeout != 0 {
		if err := checkTimeout(c.Timeout); err != nil {
			return nil, err
		}
	}
	asked := c
	asked.Key = ""
	err = s.once(ctx, c.Key, cube.VerbClone, []any{id, asked}, func(p cube.Plan) error {
		rs, err = s.clone(ctx, p, id, c)
		return err
	}, func(a cube.Answer) (err error) {
		rs, err = s.made(ctx, a)
		return err
	})
	return rs, err
}

func (s *Service) clone(ctx context.Context, p cube.Plan, id cube.SandboxID, c cube.Cloning) ([]cube.Record, error) {
	b, err := s.runner(ctx, id, "clone")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	rs := clones(b.rec, c)
	p.Sandbox, p.Made = id, ids(rs)
	w := s.making(p, rs, func(ctx context.Context) error {
		_, err := s.engineClone(ctx, id, rs, c.Concurrency)
		return err
	})
	out, err := s.make(ctx, w, rs)
	if err != nil {
		return nil, s.orDead(ctx, b, fmt.Errorf("clone %s: %w", id, err))
	}
	return out, nil
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
		r.StartedAt, r.ChangedAt, r.EndAt, r.RecoveredAt = now, now, time.Time{}, time.Time{}
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

// appear makes what the engine has made sandboxes that can be found. Their time begins
// now. Where nobody will ever hear of them it is an error, and there are none.
func (s *Service) appear(ctx context.Context, w *work, rs []cube.Record) error {
	if err := ctx.Err(); err != nil && w.Key == "" {
		return err
	}
	now := time.Now()
	run := slices.Clone(rs)
	for i := range run {
		sb, err := s.engine.Sandbox(context.WithoutCancel(ctx), rs[i].ID)
		if err != nil {
			return err
		}
		run[i].Phase, run[i].Generation, run[i].ChangedAt = cube.PhaseRunning, sb.Generation, now
		run[i].Restored = cube.RestoredMemory
		run[i].EndAt = endFrom(now, run[i].Timeout)
	}
	if err := s.commit(ctx, w.answered(cube.Batch{Sandboxes: run}, cube.Answer{Sandboxes: ids(run)})); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range run {
		s.boxes[r.ID], s.order = newBox(r), nil
	}
	w.made = run
	return nil
}

package gvisor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// sandbox is what the engine knows of one.
type sandbox struct {
	id cube.SandboxID
	// verb is held by the verb that is at work: one token.
	verb chan struct{}
	// ended is how many verbs have been at work.
	ended atomic.Uint64

	mu       sync.Mutex // guards the following
	info     cube.Sandbox
	life     life // the current one
	rootfs   string
	agent    string
	engine   string // the version of its sentry, which its images need
	identity cube.Identity
	way      chan struct{}      // closed when other lives of it have ended, for which it stays frozen; nil: there is none
	kept     bool               // its state is in an image that is being published: its death costs nothing
	untold   *keeperapi.Life    // that it died meanwhile, or nil
	extra    context.CancelFunc // ends what a pause does beyond what it must, or nil
	waiting  int                // how many wait for a pause to do no more than it must
	gone     bool               // killed; whoever still holds the pointer must let go
	based    []cube.BaseID      // in whose pages its memory may lie
	cost     int64              // what admission was asked for, in bytes
	spare    net.Conn           // a connection to envd that nobody has used yet, or nil
	seen     uint64             // number of the newest event of the agent that was told
	stop     context.CancelFunc // ends following the agent's events
}

func newSandbox(k *keeper, l keeperapi.Life) *sandbox {
	s := &sandbox{id: l.Labels.Sandbox, verb: make(chan struct{}, 1)}
	s.adopt(k, l)
	return s
}

// adopt makes l the current life.
func (s *sandbox) adopt(k *keeper, l keeperapi.Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSpare()
	s.life, s.rootfs, s.agent, s.engine, s.identity = life{l.Life, k}, l.Rootfs, l.Agent, l.Engine, l.Labels.Identity
	s.based = l.Bases
	s.info = cube.Sandbox{
		ID: l.Labels.Sandbox, Generation: l.Labels.Generation, State: cube.StateRunning,
		Image: l.Labels.Image, Limits: l.Limits, StartedAt: l.Started, Death: l.Death,
	}
	if l.State == keeperapi.StateDead {
		s.info.State = cube.StateDead
	}
}

// dropSpare is called with mu held.
func (s *sandbox) dropSpare() {
	if s.spare != nil {
		s.spare.Close()
		s.spare = nil
	}
}

// view is the sandbox as others see it.
func (s *sandbox) view() cube.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

func (s *sandbox) setState(st cube.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.State != cube.StateDead {
		s.info.State = st
	}
}

// current returns the life and what it was made of.
func (s *sandbox) current() (l life, info cube.Sandbox, identity cube.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life, s.info, s.identity
}

// lock begins a verb on a live sandbox, or says at once why not.
func (e *Engine) lock(id cube.SandboxID) (*sandbox, error) {
	s, err := e.find(id)
	if err != nil {
		return nil, err
	}
	select {
	case s.verb <- struct{}{}:
	default:
		return nil, fmt.Errorf("sandbox %s: another verb is at work: %w", id, cube.ErrConflict)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		<-s.verb
		return nil, fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	}
	if s.info.State == cube.StateDead {
		<-s.verb
		return nil, deadError(s.info)
	}
	if s.way != nil {
		<-s.verb
		return nil, notAlone(id)
	}
	return s, nil
}

// unlock ends a verb.
func (s *sandbox) unlock() {
	s.ended.Add(1)
	<-s.verb
}

// since reports whether a verb is at work, or has been since ended was as many: the life
// may have been stopped for a while, whatever its state says.
func (s *sandbox) since(ended uint64) bool {
	return len(s.verb) > 0 || s.ended.Load() != ended // in this order: unlock counts first
}

func deadError(info cube.Sandbox) error {
	return fmt.Errorf("sandbox %s: %w: %s: %s", info.ID, cube.ErrDead, info.Death.Reason, info.Death.Detail)
}

// find returns a sandbox by its id.
func (e *Engine) find(id cube.SandboxID) (*sandbox, error) {
	if _, err := cube.ParseSandboxID(string(id)); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.sandboxes[id]
	if !ok {
		return nil, fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	}
	return s, nil
}

// enter makes a sandbox known.
func (e *Engine) enter(s *sandbox) {
	e.mu.Lock()
	e.sandboxes[s.id] = s
	e.mu.Unlock()
	e.assign(s)
}

// assign says whose the current life of a sandbox is, and tells of its death if
// that came first.
func (e *Engine) assign(s *sandbox) {
	l, _, _ := s.current()
	e.mu.Lock()
	e.byLife[l.id] = s
	dead, ended := e.dead[l.id]
	delete(e.dead, l.id)
	e.mu.Unlock()
	if ended {
		e.died(dead)
	}
}

// claimID sets an id aside for a sandbox that is being made, or says that it is
// taken. release takes that back.
func (e *Engine) claimID(id cube.SandboxID) (release func(), err error) {
	if _, err := cube.ParseSandboxID(string(id)); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.sandboxes[id]; ok {
		return nil, fmt.Errorf("sandbox %s: %w", id, cube.ErrExists)
	}
	if _, ok := e.claimed[id]; ok {
		return nil, fmt.Errorf("sandbox %s is being made: %w", id, cube.ErrExists)
	}
	e.claimed[id] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.claimed, id)
	}, nil
}

// remove makes a sandbox unknown.
func (e *Engine) remove(s *sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.dropSpare()
	if s.stop != nil {
		s.stop()
	}
	delete(e.sandboxes, s.id)
	delete(e.byLife, s.life.id)
}

// Sandbox implements cube.Engine.
func (e *Engine) Sandbox(_ context.Context, id cube.SandboxID) (cube.Sandbox, error) {
	s, err := e.find(id)
	if err != nil {
		return cube.Sandbox{}, err
	}
	return s.view(), nil
}

// Sandboxes implements cube.Engine.
func (e *Engine) Sandboxes(context.Context) ([]cube.Sandbox, error) {
	e.mu.Lock()
	all := make([]*sandbox, 0, len(e.sandboxes))
	for _, s := range e.sandboxes {
		all = append(all, s)
	}
	e.mu.Unlock()
	out := make([]cube.Sandbox, len(all))
	for i, s := range all {
		out[i] = s.view()
	}
	slices.SortFunc(out, func(a, b cube.Sandbox) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out, nil
}

// Usage implements cube.Engine.
func (e *Engine) Usage(ctx context.Context, id cube.SandboxID) (cube.Usage, error) {
	s, err := e.find(id)
	if err != nil {
		return cube.Usage{}, err
	}
	l, info, _ := s.current()
	if info.State == cube.StateDead {
		return cube.Usage{}, deadError(info)
	}
	u, err := l.usage(ctx)
	if err != nil {
		return cube.Usage{}, fmt.Errorf("usage of %s: %w", id, err)
	}
	return u.Usage, nil
}

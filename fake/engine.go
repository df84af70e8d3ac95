package fake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	cube "cubesandbox"
)

// Engine is a cube.Engine on a Machine.
type Engine struct {
	m      *Machine
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the filler of pools

	// Guarded by m.mu:
	closed  bool
	wanted  map[cube.ImageID]int
	filling chan struct{} // closed when the filler ends; nil when none is at work
	again   bool          // the filler must look again
	poolErr error
}

var _ cube.Engine = (*Engine)(nil)

// Open gives an engine on the machine.
func (m *Machine) Open() *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{m: m, ctx: ctx, cancel: cancel}
}

// Close implements cube.Engine.
func (e *Engine) Close() error {
	e.cancel()
	e.m.mu.Lock()
	e.closed = true
	for r := range e.m.readers {
		if r.engine == e {
			e.m.drop(r)
		}
	}
	e.m.mu.Unlock()
	e.wg.Wait()
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	clear(e.m.pool)
	return nil
}

// find returns a sandbox, dead or not. m.mu is held.
func (e *Engine) find(id cube.SandboxID) (*sandbox, error) {
	if e.closed {
		return nil, fmt.Errorf("sandbox %s: the engine is closed: %w", id, cube.ErrUnavailable)
	}
	if _, err := cube.ParseSandboxID(string(id)); err != nil {
		return nil, err
	}
	s := e.m.sandboxes[id]
	if s == nil {
		return nil, fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound)
	}
	return s, nil
}

// alive returns a sandbox that is not dead. m.mu is held.
func (e *Engine) alive(id cube.SandboxID) (*sandbox, error) {
	s, err := e.find(id)
	if err == nil && s.State == cube.StateDead {
		return nil, fmt.Errorf("sandbox %s (%s): %w", id, s.Death.Reason, cube.ErrDead)
	}
	return s, err
}

// begin takes a sandbox for a verb; end gives it back.
func (e *Engine) begin(ctx context.Context, verb string, id cube.SandboxID) (s *sandbox, end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, err = e.alive(id); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", verb, err)
	}
	if s.busy != nil {
		return nil, nil, fmt.Errorf("%s %s: another verb is at work: %w", verb, id, cube.ErrConflict)
	}
	busy := make(chan struct{})
	s.busy = busy
	return s, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.busy = nil
		close(busy)
	}, nil
}

// Kill implements cube.Engine.
func (e *Engine) Kill(ctx context.Context, id cube.SandboxID) error {
	m := e.m
	for {
		m.mu.Lock()
		s, err := e.find(id)
		if err != nil || s.busy == nil {
			defer m.mu.Unlock()
			if err != nil {
				return fmt.Errorf("kill: %w", err)
			}
			s.life.end()
			delete(m.sandboxes, id)
			return nil
		}
		busy := s.busy
		m.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return fmt.Errorf("kill %s: another verb is at work: %w", id, ctx.Err())
		}
	}
}

// Sandbox implements cube.Engine.
func (e *Engine) Sandbox(_ context.Context, id cube.SandboxID) (cube.Sandbox, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	s, err := e.find(id)
	if err != nil {
		return cube.Sandbox{}, err
	}
	return s.Sandbox, nil
}

// Sandboxes implements cube.Engine.
func (e *Engine) Sandboxes(context.Context) ([]cube.Sandbox, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	var out []cube.Sandbox
	for s := range maps.Values(e.m.sandboxes) {
		out = append(out, s.Sandbox)
	}
	slices.SortFunc(out, func(a, b cube.Sandbox) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// Usage implements cube.Engine: the state's bytes, and what the host charges.
func (e *Engine) Usage(_ context.Context, id cube.SandboxID) (cube.Usage, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	s, err := e.alive(id)
	if err != nil {
		return cube.Usage{}, err
	}
	var bytes int64
	for k, v := range s.life.copyState() {
		bytes += int64(len(k) + len(v))
	}
	return cube.Usage{HostMemory: bytes + overhead, GuestMemory: bytes}, nil
}

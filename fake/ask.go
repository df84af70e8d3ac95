package fake

import (
	"context"
	"fmt"

	cube "cubesandbox"
)

// silence is what is wrong with the agent of one life.
type silence struct {
	in  cube.Generation
	why string
}

// Silence makes the agent of a sandbox's current life fail, with a reason; an empty one
// ends that.
func (m *Machine) Silence(id cube.SandboxID, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.silent, id)
	if s := m.sandboxes[id]; s != nil && why != "" {
		m.silent[id] = silence{s.Generation, why}
	}
}

// Asked is how many times agents were asked how they are.
func (m *Machine) Asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// Ask implements cube.Engine.
func (e *Engine) Ask(_ context.Context, id cube.SandboxID) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	e.m.asked++
	s, err := e.alive(id)
	if err != nil {
		return err
	}
	if s.State != cube.StateRunning {
		return fmt.Errorf("ask the agent of %s: it is %s: %w", id, s.State, cube.ErrConflict)
	}
	if no := e.m.silent[id]; no.why != "" && no.in == s.Generation {
		return fmt.Errorf("%w: %s", cube.ErrAgent, no.why)
	}
	return nil
}

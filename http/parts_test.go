package http

import (
	"context"
	"maps"
	"slices"
	"sync"

	cube "cubesandbox"
)

// names never change while a test runs requests at the same time.
type names map[string]cube.ImageID

func (n names) Names() (map[string]cube.ImageID, error) { return maps.Clone(n), nil }

func (n names) RemoveName(name string) error {
	delete(n, name)
	return nil
}

type memory struct {
	mu        sync.Mutex
	sandboxes map[cube.SandboxID]cube.Record
	snapshots map[cube.ImageID]cube.Snapshot
}

func newMemory() *memory {
	return &memory{sandboxes: map[cube.SandboxID]cube.Record{}, snapshots: map[cube.ImageID]cube.Snapshot{}}
}

func (m *memory) PutSandboxes(_ context.Context, rs ...cube.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rs {
		m.sandboxes[r.ID] = r
	}
	return nil
}

func (m *memory) Sandbox(_ context.Context, id cube.SandboxID) (cube.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.sandboxes[id]; ok {
		return r, nil
	}
	return cube.Record{}, cube.ErrNotFound
}

func (m *memory) Sandboxes(context.Context) ([]cube.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.sandboxes)), nil
}

func (m *memory) DeleteSandbox(_ context.Context, id cube.SandboxID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sandboxes, id)
	return nil
}

func (m *memory) PutSnapshot(_ context.Context, s cube.Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snapshots[s.ID] = s
	return nil
}

func (m *memory) Snapshots(context.Context) ([]cube.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.snapshots)), nil
}

func (m *memory) DeleteSnapshot(_ context.Context, id cube.ImageID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.snapshots, id)
	return nil
}

func (m *memory) Close() error { return nil }

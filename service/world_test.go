package service

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/fake"
)

// world is a machine with an engine, and what a service needs beside it. The
// service can be closed and opened again.
type world struct {
	t        *testing.T
	m        *fake.Machine
	e        *fake.Engine
	s        *Service
	conf     Config
	store    *memory
	names    *names
	template cube.ImageID
}

var limits = cube.Limits{MemoryMiB: 128, CPUs: 2, DiskMiB: 1024, Pids: 128}

func newWorld(t *testing.T) *world {
	w := &world{t: t, m: fake.NewMachine(64 << 30), store: newMemory()}
	w.template = w.m.AddTemplate([32]byte{1}, limits, map[string]string{"file": "of the template"})
	w.names = &names{m: map[string]cube.ImageID{"base": w.template}}
	w.open()
	t.Cleanup(w.close)
	return w
}

// open starts a service on what is there.
func (w *world) open() {
	w.t.Helper()
	w.e = w.m.Open()
	w.conf.Engine, w.conf.Store, w.conf.Images, w.conf.Names = w.e, w.store, fake.Store{Machine: w.m}, w.names
	s, err := Open(w.t.Context(), w.conf)
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
}

func (w *world) close() {
	if err := w.s.Close(); err != nil {
		w.t.Error(err)
	}
	if err := w.e.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) reopen() {
	w.t.Helper()
	w.close()
	w.open()
}

// create makes a sandbox that lives as long as it likes.
func (w *world) create(change ...func(*cube.NewSandbox)) cube.Record {
	w.t.Helper()
	n := cube.NewSandbox{Template: "base", Timeout: cube.NeverTimeout}
	for _, c := range change {
		c(&n)
	}
	r, err := w.s.Create(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// nothingLeft wants neither sandboxes nor images but the template.
func (w *world) nothingLeft() {
	w.t.Helper()
	live, err := w.e.Sandboxes(w.t.Context())
	if err != nil || len(live) > 0 {
		w.t.Errorf("the engine has %v (%v), want nothing", live, err)
	}
	for _, im := range w.m.Images() {
		if im.ID != w.template {
			w.t.Errorf("image %s of %s is left", im.ID, im.Source)
		}
	}
	for id, r := range w.store.sandboxes {
		if r.Phase != cube.PhaseEnded {
			w.t.Errorf("record of %s is left in phase %s", id, r.Phase)
		}
	}
	if len(w.store.snapshots) > 0 {
		w.t.Errorf("records of snapshots are left: %v", w.store.snapshots)
	}
	if w.s.cpus.used != 0 {
		w.t.Errorf("%d CPUs are still promised", w.s.cpus.used)
	}
}

// eventually waits for something that happens by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after 10 s still not: %s", what)
		}
	}
}

type names struct {
	mu sync.Mutex
	m  map[string]cube.ImageID
}

func (n *names) Names() (map[string]cube.ImageID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.m), nil
}

func (n *names) RemoveName(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, name)
	return nil
}

// memory is a store that can fail.
type memory struct {
	mu        sync.Mutex
	sandboxes map[cube.SandboxID]cube.Record
	snapshots map[cube.ImageID]cube.Snapshot
	// fail decides about each write; nil lets all through.
	fail func(cube.Record) error
	// history is every phase that was written, by sandbox.
	history map[cube.SandboxID][]cube.Phase
}

func newMemory() *memory {
	return &memory{
		sandboxes: map[cube.SandboxID]cube.Record{}, snapshots: map[cube.ImageID]cube.Snapshot{},
		history: map[cube.SandboxID][]cube.Phase{},
	}
}

func (m *memory) PutSandboxes(ctx context.Context, rs ...cube.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rs {
		if m.fail != nil {
			if err := m.fail(r); err != nil {
				return err
			}
		}
	}
	for _, r := range rs {
		m.sandboxes[r.ID] = r
		m.history[r.ID] = append(m.history[r.ID], r.Phase)
	}
	return ctx.Err()
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
	return slices.SortedFunc(maps.Values(m.sandboxes), func(a, b cube.Record) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	}), nil
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

// phase changes a record behind the service's back.
func (m *memory) phase(id cube.SandboxID, change func(*cube.Record)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.sandboxes[id]
	change(&r)
	m.sandboxes[id] = r
}

package service

import (
	"context"
	"maps"
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
	store    memory
	names    *names
	template cube.ImageID
	between  func() // what happens between a crash and the next start; nil: nothing
}

var limits = cube.Limits{MemoryMiB: 128, CPUs: 2, DiskMiB: 1024, Pids: 128}

func newWorld(t *testing.T) *world {
	w := &world{t: t, m: fake.NewMachine(64 << 30), store: memory{fake.NewRecords(), t}}
	w.template = w.m.AddTemplate([32]byte{1}, limits, map[string]string{"file": "of the template"})
	w.names = &names{m: map[string]cube.ImageID{"base": w.template}}
	w.open()
	t.Cleanup(w.close)
	return w
}

// open starts a service on what is there.
func (w *world) open() {
	w.t.Helper()
	w.openOver(func(*Config) {})
}

// openOver starts a service that stands on something else, which change says.
func (w *world) openOver(change func(*Config)) {
	w.t.Helper()
	w.e = w.m.Open()
	w.conf.Engine, w.conf.Store, w.conf.Images, w.conf.Names = w.e, w.store, fake.Store{Machine: w.m}, w.names
	conf := w.conf
	change(&conf)
	s, err := Open(w.t.Context(), conf)
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
	<-s.looked // what tests do behind its back would meet it
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

// reopenOver closes the service and starts one that stands on something else.
func (w *world) reopenOver(change func(*Config)) {
	w.t.Helper()
	w.close()
	w.openOver(change)
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
	ctx := context.Background()
	recs, err := w.store.Sandboxes(ctx)
	must(w.t, err)
	for _, r := range recs {
		if r.Phase != cube.PhaseEnded {
			w.t.Errorf("record of %s is left in phase %s", r.ID, r.Phase)
		}
	}
	if snaps, err := w.store.Snapshots(ctx); err != nil || len(snaps) > 0 {
		w.t.Errorf("records of snapshots are left: %v (%v)", snaps, err)
	}
	if plans, err := w.store.Plans(ctx); err != nil || len(plans) > 0 {
		w.t.Errorf("plans are left: %v (%v)", plans, err)
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

// memory is a store that can fail by the record.
type memory struct {
	*fake.Records
	t *testing.T
}

// failing has f decide about each record that is written; nil lets all through.
func (m memory) failing(f func(cube.Record) error) {
	m.Fail(func(b cube.Batch) error {
		for _, r := range b.Sandboxes {
			if f == nil {
				return nil
			}
			if err := f(r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m memory) record(id cube.SandboxID) cube.Record {
	r, err := m.Sandbox(context.Background(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// phase changes a record behind the service's back.
func (m memory) phase(id cube.SandboxID, change func(*cube.Record)) {
	r := m.record(id)
	change(&r)
	must(m.t, m.Apply(context.Background(), cube.Batch{Sandboxes: []cube.Record{r}}))
}

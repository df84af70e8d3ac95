package fake

import (
	"context"
	"fmt"
	"maps"

	cube "cubesandbox"
)

// Boot implements cube.Engine: Rootfs is the only one that there is, and its
// guest is empty.
func (e *Engine) Boot(ctx context.Context, spec cube.BootSpec) (cube.Sandbox, error) {
	if err := checkLimits(spec.Limits); err != nil {
		return cube.Sandbox{}, fmt.Errorf("boot: %w", err)
	}
	if spec.Rootfs != Rootfs {
		return cube.Sandbox{}, fmt.Errorf("boot: root file system %q: %w", spec.Rootfs, cube.ErrNotFound)
	}
	undo, err := e.reserve([]cube.CreateSpec{{ID: spec.ID}}, charge(spec.Limits))
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("boot: %w", err)
	}
	defer undo()
	if err := e.m.reach(ctx, PointStart); err != nil {
		return cube.Sandbox{}, fmt.Errorf("boot %s: %w", spec.ID, err)
	}
	l := newLife(map[string]string{})
	return e.add(cube.CreateSpec{ID: spec.ID, Identity: spec.Identity}, spec.Limits, l), nil
}

// Create implements cube.Engine.
func (e *Engine) Create(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	return e.createOne(ctx, "create", spec)
}

// Resume implements cube.Engine.
func (e *Engine) Resume(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	if spec.Generation < 2 {
		return cube.Sandbox{}, fmt.Errorf("resume %s: generation %d: it must be above that of the paused life: %w", spec.ID, spec.Generation, cube.ErrInvalid)
	}
	return e.createOne(ctx, "resume", spec)
}

func (e *Engine) createOne(ctx context.Context, verb string, spec cube.CreateSpec) (cube.Sandbox, error) {
	fail := func(err error) (cube.Sandbox, error) {
		return cube.Sandbox{}, fmt.Errorf("%s %s from %s: %w", verb, spec.ID, spec.Image, err)
	}
	img, err := e.image(spec.Image)
	if err != nil {
		return fail(err)
	}
	undo, err := e.reserve([]cube.CreateSpec{spec}, charge(img.Limits))
	if err != nil {
		return fail(err)
	}
	defer undo()
	l := e.claim(spec.Image)
	switch {
	case spec.Files && img.FilesBytes == 0:
		return fail(fmt.Errorf("it has no files apart from its memory: %w", cube.ErrNotFound))
	case spec.Files:
		l = newLife(filesOf(img.state))
	case img.FilesOnly:
		return fail(fmt.Errorf("it has no memory, it can only be booted from its files: %w", cube.ErrIncompatible))
	case l == nil:
		if l, err = e.m.restore(ctx, img); err != nil {
			return fail(err)
		}
	}
	out := e.add(spec, img.Limits, l)
	e.refill()
	if spec.Files {
		e.m.mu.Lock()
		defer e.m.mu.Unlock()
		e.m.emit(cube.Event{Kind: cube.EventFilesOnly, Sandbox: spec.ID, Generation: out.Generation, At: e.m.now()})
	}
	return out, nil
}

// filesOf is what of a guest's state is on its disk: all but what is called "memory".
func filesOf(state map[string]string) map[string]string {
	files := maps.Clone(state)
	delete(files, "memory")
	return files
}

// image looks one up.
func (e *Engine) image(id cube.ImageID) (*image, error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return nil, err
	}
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	img := e.m.images[id]
	if img == nil {
		return nil, fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
	}
	return img, nil
}

// reserve takes ids and memory for sandboxes that are about to be made, all or
// none; undo gives back what has not become a sandbox.
func (e *Engine) reserve(specs []cube.CreateSpec, each int64) (undo func(), err error) {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("the engine is closed: %w", cube.ErrUnavailable)
	}
	seen := map[cube.SandboxID]bool{}
	for _, spec := range specs {
		if _, err := cube.ParseSandboxID(string(spec.ID)); err != nil {
			return nil, err
		}
		if seen[spec.ID] {
			return nil, fmt.Errorf("sandbox %s is asked for twice: %w", spec.ID, cube.ErrInvalid)
		}
		seen[spec.ID] = true
		if _, starting := m.starting[spec.ID]; starting || m.sandboxes[spec.ID] != nil {
			return nil, fmt.Errorf("sandbox %s: %w", spec.ID, cube.ErrExists)
		}
	}
	if err := m.admit(int64(len(specs)) * each); err != nil {
		return nil, err
	}
	for id := range seen {
		m.starting[id] = each
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for id := range seen {
			delete(m.starting, id)
		}
	}, nil
}

// restore makes a life from an image: started, loaded, checked.
func (m *Machine) restore(ctx context.Context, img *image) (*life, error) {
	if err := m.reach(ctx, PointStart); err != nil {
		return nil, err
	}
	if err := m.reach(ctx, PointLoad); err != nil {
		return nil, err
	}
	if err := img.check(); err != nil {
		return nil, err
	}
	return newLife(img.state), nil
}

// claim takes a member of the image's pool, nil when there is none.
func (e *Engine) claim(id cube.ImageID) *life {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	members := m.pool[id]
	if len(members) == 0 {
		return nil
	}
	m.pool[id] = members[1:]
	return members[0]
}

// add makes a life known as a running sandbox, from which moment it can be reached.
func (e *Engine) add(spec cube.CreateSpec, limits cube.Limits, l *life) cube.Sandbox {
	gen := max(1, spec.Generation)
	l.tell(spec.ID, spec.Identity, gen)
	s := &sandbox{life: l, Sandbox: cube.Sandbox{
		ID: spec.ID, Generation: gen, State: cube.StateRunning, Image: spec.Image,
		Limits: limits, StartedAt: e.m.now(),
	}}
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	delete(e.m.starting, spec.ID)
	e.m.sandboxes[spec.ID] = s
	return s.Sandbox
}

func checkLimits(l cube.Limits) error {
	for _, c := range []struct {
		name             string
		value, low, high int64
	}{
		{"memory", l.MemoryMiB, 128, 1 << 20}, {"cpus", int64(l.CPUs), 1, 128},
		{"disk", l.DiskMiB, 64, 16 << 20}, {"pids", l.Pids, 16, 4 << 20},
	} {
		if c.value < c.low || c.value > c.high {
			return fmt.Errorf("limit %s: %d is not between %d and %d: %w", c.name, c.value, c.low, c.high, cube.ErrInvalid)
		}
	}
	return nil
}

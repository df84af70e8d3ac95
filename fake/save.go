package fake

import (
	"context"
	"fmt"

	cube "cubesandbox"
)

// Save implements cube.Engine.
func (e *Engine) Save(ctx context.Context, id cube.SandboxID, image cube.ImageID) (cube.Image, error) {
	s, end, err := e.begin(ctx, "save", id)
	if err != nil {
		return cube.Image{}, err
	}
	defer end()
	meta, err := e.save(ctx, s, image, cube.KindSnapshot)
	if err != nil {
		return cube.Image{}, fmt.Errorf("save %s: %w", id, err)
	}
	return meta, nil
}

// Pause implements cube.Engine.
func (e *Engine) Pause(ctx context.Context, id cube.SandboxID, image cube.ImageID, o cube.Pausing) (cube.Image, error) {
	s, end, err := e.begin(ctx, "pause", id)
	if err != nil {
		return cube.Image{}, err
	}
	defer end()
	if _, err := e.save(ctx, s, image, cube.KindPause); err != nil {
		return cube.Image{}, fmt.Errorf("pause %s: %w", id, err)
	}
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	img := e.m.images[image]
	img.FilesOnly, img.Durable, img.FilesBytes = o.FilesOnly, true, img.PagesBytes+1
	s.life.end()
	delete(e.m.sandboxes, id)
	return img.Image, nil
}

// Clone implements cube.Engine.
func (e *Engine) Clone(ctx context.Context, id cube.SandboxID, specs []cube.CreateSpec, _ int) ([]cube.Sandbox, error) {
	s, end, err := e.begin(ctx, "clone", id)
	if err != nil {
		return nil, err
	}
	defer end()
	fail := func(err error) ([]cube.Sandbox, error) {
		return nil, fmt.Errorf("clone %s: %w", id, err)
	}
	if len(specs) == 0 {
		return fail(fmt.Errorf("no clone is asked for: %w", cube.ErrInvalid))
	}
	// Before the source is touched: ids and memory are there.
	undo, err := e.reserve(specs, charge(s.Limits))
	if err != nil {
		return fail(err)
	}
	defer undo()
	state, err := e.still(ctx, s)
	if err != nil {
		return fail(err)
	}
	img := newImage(cube.Image{ID: cube.NewSnapshotID(), Limits: s.Limits}, state)
	if err := e.m.reach(ctx, PointPublish); err != nil {
		return fail(err)
	}
	lives := make([]*life, len(specs))
	for i := range specs {
		if lives[i], err = e.m.restore(ctx, img); err != nil {
			return fail(err)
		}
	}
	out := make([]cube.Sandbox, len(specs))
	for i, spec := range specs {
		spec.Image = img.ID
		out[i] = e.add(spec, img.Limits, lives[i])
	}
	return out, nil
}

// Rollback implements cube.Engine.
func (e *Engine) Rollback(ctx context.Context, id cube.SandboxID, image cube.ImageID) (cube.Sandbox, error) {
	s, end, err := e.begin(ctx, "rollback", id)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer end()
	next, err := e.beside(ctx, s, image)
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("rollback %s to %s: %w", id, image, err)
	}
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.State == cube.StateDead {
		return cube.Sandbox{}, fmt.Errorf("rollback %s (%s): %w", id, s.Death.Reason, cube.ErrDead)
	}
	old := s.life
	old.mu.Lock()
	identity := old.identity
	old.mu.Unlock()
	s.Generation++
	next.tell(id, identity, s.Generation)
	s.life, s.Image, s.StartedAt, s.State = next, image, m.now(), cube.StateRunning
	old.end()
	return s.Sandbox, nil
}

// beside restores a life beside that of a sandbox, which stands still meanwhile.
func (e *Engine) beside(ctx context.Context, s *sandbox, from cube.ImageID) (l *life, err error) {
	img, err := e.image(from)
	if err != nil {
		return nil, err
	}
	m := e.m
	m.mu.Lock()
	bytes := charge(img.Limits)
	if err := m.admit(bytes); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	m.second += bytes
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.second -= bytes
	}()
	defer e.freeze(s)()
	if l, err = m.restore(ctx, img); err != nil {
		return nil, err
	}
	return l, m.reach(ctx, PointSwitch)
}

// save writes an image of a sandbox, which stands still meanwhile.
func (e *Engine) save(ctx context.Context, s *sandbox, id cube.ImageID, kind cube.ImageKind) (cube.Image, error) {
	if _, err := cube.ParseImageID(string(id)); err != nil {
		return cube.Image{}, err
	}
	m := e.m
	if _, err := e.image(id); err == nil {
		return cube.Image{}, fmt.Errorf("image %s: %w", id, cube.ErrExists)
	}
	state, err := e.still(ctx, s)
	if err != nil {
		return cube.Image{}, err
	}
	img := newImage(cube.Image{ID: id, Kind: kind, Source: s.ID, Generation: s.Generation, Created: m.now(), Limits: s.Limits}, state)
	if err := m.reach(ctx, PointPublish); err != nil {
		return cube.Image{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.State == cube.StateDead {
		return cube.Image{}, fmt.Errorf("sandbox %s (%s): %w", s.ID, s.Death.Reason, cube.ErrDead)
	}
	if m.images[id] != nil {
		return cube.Image{}, fmt.Errorf("image %s: %w", id, cube.ErrExists)
	}
	m.images[id] = img
	return img.Image, nil
}

// still returns the state of one instant.
func (e *Engine) still(ctx context.Context, s *sandbox) (map[string]string, error) {
	defer e.freeze(s)()
	state := s.life.copyState()
	return state, e.m.reach(ctx, PointSave)
}

// freeze shows a sandbox as frozen until thaw is called.
func (e *Engine) freeze(s *sandbox) (thaw func()) {
	set := func(from, to cube.State) {
		e.m.mu.Lock()
		defer e.m.mu.Unlock()
		if s.State == from {
			s.State = to
		}
	}
	set(cube.StateRunning, cube.StateFrozen)
	return func() { set(cube.StateFrozen, cube.StateRunning) }
}

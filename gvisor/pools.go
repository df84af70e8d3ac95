package gvisor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// pools keeps sentries booted and sandboxes restored and frozen, for whoever
// comes next. Its members belong to nobody: labelled as such, they are ended by
// any engine that finds them.
type pools struct {
	e    *Engine
	wake chan struct{} // something may be missing

	mu       sync.Mutex // guards the following
	want     cube.Pools
	shapes   map[shape]struct{} // those that have been asked for
	ready    map[shape][]string
	restored map[cube.ImageID][]member
	err      error         // why the last filling failed
	changed  chan struct{} // closed and replaced when something has changed
	drained  bool
}

// member is a restored, frozen life.
type member struct {
	life  string
	image cube.Image
}

func (p *pools) init(e *Engine) {
	p.e = e
	p.wake = make(chan struct{}, 1)
	p.shapes = map[shape]struct{}{}
	p.ready = map[shape][]string{}
	p.restored = map[cube.ImageID][]member{}
	p.changed = make(chan struct{})
}

// SetPools implements cube.Engine.
func (e *Engine) SetPools(_ context.Context, want cube.Pools) error {
	p := &e.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range want.Restored {
		im, err := e.images.Image(id)
		if err != nil {
			return fmt.Errorf("pool: %w", err)
		}
		p.shapes[shapeOf(im)] = struct{}{}
	}
	p.want, p.err = want, nil
	p.signal()
	return nil
}

// PoolsReady implements cube.Engine.
func (e *Engine) PoolsReady(ctx context.Context) error {
	p := &e.pools
	for {
		p.mu.Lock()
		full, err, changed := p.missing() == nil && !p.excess(), p.err, p.changed
		p.mu.Unlock()
		if full || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("pools are not full: %w", ctx.Err())
		}
	}
}

// signal wakes the filler. Called with mu held.
func (p *pools) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// note tells waiters that something has changed. Called with mu held.
func (p *pools) note() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// claim takes a restored member out.
func (p *pools) claim(id cube.ImageID) (life string, im cube.Image, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ms := p.restored[id]
	if len(ms) == 0 {
		return "", cube.Image{}, false
	}
	m := ms[0]
	p.restored[id] = ms[1:]
	p.signal()
	return m.life, m.image, true
}

// booted takes a booted sentry out, and remembers that its shape is in use.
func (p *pools) booted(sh shape) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.shapes[sh]; !known {
		p.shapes[sh] = struct{}{}
		p.signal()
	}
	ls := p.ready[sh]
	if len(ls) == 0 {
		return "", false
	}
	p.ready[sh] = ls[1:]
	p.signal()
	return ls[0], true
}

// job is one member that is missing.
type job struct {
	shape shape
	image cube.ImageID // empty: a booted sentry
}

// missing is what to make next, or nil. Called with mu held.
func (p *pools) missing() *job {
	for id, n := range p.want.Restored {
		if len(p.restored[id]) < n {
			return &job{image: id}
		}
	}
	for sh := range p.shapes {
		if len(p.ready[sh]) < p.want.Booted {
			return &job{shape: sh}
		}
	}
	return nil
}

// excess says whether there is more than is wanted. Called with mu held.
func (p *pools) excess() bool {
	for id, ms := range p.restored {
		if len(ms) > p.want.Restored[id] {
			return true
		}
	}
	for _, ls := range p.ready {
		if len(ls) > p.want.Booted {
			return true
		}
	}
	return false
}

// run fills the pools until the engine closes. One member at a time: what is
// asked for comes first.
func (p *pools) run() {
	for {
		select {
		case <-p.wake:
		case <-p.e.ctx.Done():
			return
		}
		p.trim()
		for p.e.ctx.Err() == nil && p.fillOne() {
		}
	}
}

// fillOne makes one missing member, and reports whether to go on.
func (p *pools) fillOne() bool {
	p.mu.Lock()
	j := p.missing()
	p.mu.Unlock()
	if j == nil {
		return false
	}
	err := p.make(p.e.ctx, j)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	p.note()
	if err != nil && p.e.ctx.Err() == nil {
		// Tried again when something is claimed or asked for.
		p.e.log.Warn("a pool cannot be filled", "image", j.image, "error", err)
	}
	return err == nil
}

func (p *pools) make(ctx context.Context, j *job) error {
	labels := keeperapi.Labels{Role: keeperapi.RolePool, Image: j.image}
	if j.image == "" {
		done, err := p.e.admission.try(p.e, sentryCost)
		if err != nil {
			return err
		}
		defer done()
		life, err := p.e.bootLife(ctx, j.shape, labels)
		if err != nil {
			return err
		}
		p.add(func() { p.ready[j.shape] = append(p.ready[j.shape], life) }, life)
		return nil
	}
	f, err := p.e.openImage(j.image)
	if err != nil {
		return err
	}
	defer f.Close()
	done, err := p.e.admission.try(p.e, cost(f.Image.PagesBytes))
	if err != nil {
		return err
	}
	defer done()
	life, err := p.e.bootLife(ctx, shapeOf(f.Image), labels)
	if err != nil {
		return err
	}
	err = p.e.restoreLife(ctx, life, f.Image, f.Files, nil)
	if err == nil {
		err = p.e.freeze(ctx, life)
	}
	if err != nil {
		p.e.endLife(life, cube.DeathKilled)
		return err
	}
	p.add(func() { p.restored[j.image] = append(p.restored[j.image], member{life, f.Image}) }, life)
	return nil
}

// add enters a new member, unless the pools are being emptied.
func (p *pools) add(enter func(), life string) {
	p.mu.Lock()
	drained := p.drained
	if !drained {
		enter()
		p.note()
	}
	p.mu.Unlock()
	if drained {
		p.e.endLife(life, cube.DeathKilled)
	}
}

// trim ends members that are not wanted any more.
func (p *pools) trim() {
	p.mu.Lock()
	var end []string
	for id, ms := range p.restored {
		for len(ms) > p.want.Restored[id] {
			end = append(end, ms[len(ms)-1].life)
			ms = ms[:len(ms)-1]
		}
		p.restored[id] = ms
	}
	for sh, ls := range p.ready {
		for len(ls) > p.want.Booted {
			end = append(end, ls[len(ls)-1])
			ls = ls[:len(ls)-1]
		}
		p.ready[sh] = ls
	}
	p.mu.Unlock()
	p.endAll(end)
	p.mu.Lock()
	p.note()
	p.mu.Unlock()
}

func (p *pools) endAll(lives []string) {
	var errs []error
	for _, l := range lives {
		errs = append(errs, p.e.endLife(l, cube.DeathKilled))
	}
	if err := errors.Join(errs...); err != nil {
		p.e.log.Error("a pool's member could not be ended", "error", err)
	}
}

// giveUp ends members until bytes are free, and reports whether that is so.
func (p *pools) giveUp(bytes int64) bool {
	p.mu.Lock()
	var end []string
	for id, ms := range p.restored {
		for len(ms) > 0 && bytes > 0 {
			end, bytes = append(end, ms[0].life), bytes-cost(ms[0].image.PagesBytes)
			ms = ms[1:]
		}
		p.restored[id] = ms
	}
	for sh, ls := range p.ready {
		for len(ls) > 0 && bytes > 0 {
			end, bytes = append(end, ls[0]), bytes-sentryCost
			ls = ls[1:]
		}
		p.ready[sh] = ls
	}
	p.mu.Unlock()
	p.endAll(end)
	return len(end) > 0 && bytes <= 0
}

// lost drops a member that has died.
func (p *pools) lost(life string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := false
	for id, ms := range p.restored {
		for i, m := range ms {
			if m.life == life {
				p.restored[id] = append(ms[:i:i], ms[i+1:]...)
				found = true
			}
		}
	}
	for sh, ls := range p.ready {
		for i, l := range ls {
			if l == life {
				p.ready[sh] = append(ls[:i:i], ls[i+1:]...)
				found = true
			}
		}
	}
	if found {
		p.signal()
	}
}

// taken is what the members were promised, in bytes.
func (p *pools) taken() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var total int64
	for _, ms := range p.restored {
		for _, m := range ms {
			total += cost(m.image.PagesBytes)
		}
	}
	for _, ls := range p.ready {
		total += int64(len(ls)) * sentryCost
	}
	return total
}

// drain empties the pools for good and returns their members.
func (p *pools) drain() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained = true
	var all []string
	for _, ms := range p.restored {
		for _, m := range ms {
			all = append(all, m.life)
		}
	}
	for _, ls := range p.ready {
		all = append(all, ls...)
	}
	p.restored, p.ready = map[cube.ImageID][]member{}, map[shape][]string{}
	return all
}

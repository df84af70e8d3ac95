package gvisor

import (
	"context"
	"errors"
	"maps"
	"net"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/agentclient"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/network/api"
)

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

// settle is how long after a member was taken its replacement is begun: whoever
// took it is about to use the processors.
const settle = 200 * time.Millisecond

// run fills the pools until the engine closes. One member at a time: what is
// asked for comes first.
func (p *pools) run() {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-p.wake:
		case <-retry.C:
		case <-p.e.ctx.Done():
			return
		}
		p.trim()
		for p.settled() && p.fillOne() {
		}
		p.mu.Lock()
		if p.missing() != nil { // it could not be made, for want of memory say
			retry.Reset(5 * time.Second)
		}
		p.mu.Unlock()
	}
}

// settled waits until no member has been taken for a while; false when the engine
// closes first.
func (p *pools) settled() bool {
	for {
		p.mu.Lock()
		left := settle - time.Since(p.used)
		p.mu.Unlock()
		if left <= 0 {
			return p.e.ctx.Err() == nil
		}
		select {
		case <-time.After(left):
		case <-p.e.ctx.Done():
			return false
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

// connect makes the connections that whoever claims the member will use.
func (m *member) connect(ctx context.Context) (err error) {
	if m.control, err = m.life.control()(ctx, agentapi.ControlPort); err != nil {
		return err
	}
	m.envd, err = m.life.dial(ctx, agentapi.EnvdPort, api.ViaDirect)
	return err
}

// clockTime is how long a restored kernel runs before it is frozen for the pool.
// gVisor measures its clock twice, a second apart; before that each reading of the
// time is a system call, and a Go program reads it many times a millisecond: the
// first program of a sandbox that was frozen at once took 1 ms longer.
const clockTime = 1200 * time.Millisecond

func (e *Engine) setClock(ctx context.Context) error {
	select {
	case <-time.After(clockTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nobodyID is who a member is until it is claimed.
const nobodyID cube.SandboxID = "00000000000000000000000000000000"

// warm runs a program in a restored life once, so that the first one of its owner
// finds the way paved: a restored process faults in every page that it touches.
func (e *Engine) warm(ctx context.Context, l life, token string) {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	c := agentclient.New(func(ctx context.Context, port uint16) (net.Conn, error) {
		return l.dial(ctx, port, api.ViaDirect)
	}, token)
	defer c.Close()
	// A root file system may lack the program; then it is not warmed.
	if _, err := c.Run(ctx, "/bin/true", nil, agentclient.RunOptions{User: "root"}); err != nil {
		e.log.Debug("a pool's member is not warmed", "life", l.id, "error", err)
	}
}

func (p *pools) make(ctx context.Context, j *job) error {
	labels := keeperapi.Labels{Role: keeperapi.RolePool, Image: j.image}
	if j.image == "" {
		promised, err := p.e.admission.try(p.e, sentryCost)
		if err != nil {
			return err
		}
		defer promised.end()
		l, err := p.e.bootLife(ctx, p.e.keepers.current, j.shape, labels)
		if errors.Is(err, cube.ErrNotFound) || errors.Is(err, cube.ErrIncompatible) {
			p.forget(j.shape)
			return nil
		}
		if err != nil {
			return err
		}
		p.add(func() { p.ready[j.shape] = append(p.ready[j.shape], l) }, l)
		return nil
	}
	src, err := p.e.openImage(ctx, j.image)
	if err != nil {
		return err
	}
	defer src.close()
	promised, err := p.e.admission.try(p.e, costOf(src.image))
	if err != nil {
		return err
	}
	defer promised.end()
	l, err := p.e.bootLife(ctx, src.k, shapeOf(src.image), labels)
	if err != nil {
		return err
	}
	nobody := identify(nobodyID, 1, cube.Identity{AccessToken: randomHex(16)}, src.image.Limits)
	nobody.Spare = true
	m := member{life: l, image: src.image}
	// One at a time and of low weight: it must not hold the turn of anybody.
	err = p.e.loadLife(ctx, l, src.image, src.files, nobody, func() {})
	if err == nil {
		p.e.warm(ctx, l, nobody.AccessToken)
		err = p.e.setClock(ctx)
	}
	if err == nil {
		err = m.connect(ctx)
	}
	if err == nil {
		p.e.noteEarlyNow(ctx, l, src.image.Base)
		m.frozen = time.Now()
		err = l.freeze(ctx)
	}
	if err != nil {
		m.disconnect()
		p.e.bury(l)
		return err
	}
	p.add(func() { p.restored[j.image] = append(p.restored[j.image], m) }, l)
	return nil
}

// forget drops a shape whose file systems are gone with the last image that had them.
func (p *pools) forget(sh shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.shapes, sh)
}

// keepOnly forgets the shapes with other root file systems than these, and ends what
// was booted for them.
func (p *pools) keepOnly(rootfs map[string]struct{}) {
	p.mu.Lock()
	var end []life
	gone := func(sh shape) bool { _, needed := rootfs[sh.rootfs]; return !needed }
	for sh, ls := range p.ready {
		if gone(sh) {
			end = append(end, ls...)
			delete(p.ready, sh)
		}
	}
	maps.DeleteFunc(p.shapes, func(sh shape, _ struct{}) bool { return gone(sh) })
	p.note()
	p.mu.Unlock()
	p.endAll(end)
}

// add enters a new member, unless the pools are being emptied.
func (p *pools) add(enter func(), l life) {
	p.mu.Lock()
	drained := p.drained
	if !drained {
		enter()
		p.note()
	}
	p.mu.Unlock()
	if drained {
		p.e.bury(l)
	}
}

// trim ends members that are not wanted any more.
func (p *pools) trim() {
	p.mu.Lock()
	var end []life
	for id, ms := range p.restored {
		for len(ms) > p.want.Restored[id] {
			end = append(end, ms[len(ms)-1].leave())
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

func (p *pools) endAll(lives []life) {
	for _, l := range lives {
		p.e.bury(l)
	}
}

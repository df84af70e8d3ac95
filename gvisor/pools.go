package gvisor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/guest/agentclient"
)

// pools keeps sentries booted and sandboxes restored and frozen, for whoever
// comes next. Its members belong to nobody: labelled as such, they are ended by
// any engine that finds them.
type pools struct {
	e    *Engine
	wake chan struct{} // something may be missing

	mu       sync.Mutex // guards the following
	want     cube.Pools
	shapes   map[shape]struct{} // those of our version that have been asked for
	ready    map[shape][]life
	restored map[cube.ImageID][]member
	err      error         // why the last filling failed
	changed  chan struct{} // closed and replaced when something has changed
	drained  bool
	used     time.Time // when a member was last taken
}

// member is a restored, frozen life.
type member struct {
	life  life
	image cube.Image
	// control and envd are connections to the agent's two ports that were made
	// before it was frozen.
	control, envd net.Conn
	frozen        time.Time
}

// dial gives the connection that is there, or a new one where cube-network was
// restarted meanwhile.
func (m member) dial() agentclient.Dialer {
	return func(ctx context.Context, port uint16) (net.Conn, error) {
		if connected(m.control) {
			return m.control, nil
		}
		return m.life.control()(ctx, port)
	}
}

// connected reports whether nothing has been heard of the end of a connection on
// which nothing has been said.
func connected(c net.Conn) bool {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	var quiet bool
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = err == unix.EAGAIN
		return true
	})
	return err == nil && quiet
}

func (m member) disconnect() {
	for _, c := range []net.Conn{m.control, m.envd} {
		if c != nil {
			c.Close()
		}
	}
}

// leave takes a member's life, which is to be ended.
func (m member) leave() life {
	m.disconnect()
	return m.life
}

func (p *pools) init(e *Engine) {
	p.e = e
	p.wake = make(chan struct{}, 1)
	p.shapes = map[shape]struct{}{}
	p.ready = map[shape][]life{}
	p.restored = map[cube.ImageID][]member{}
	p.changed = make(chan struct{})
}

// SetPools implements cube.Engine.
func (e *Engine) SetPools(_ context.Context, want cube.Pools) error {
	p := &e.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	if want.Booted < 0 {
		return fmt.Errorf("pool of booted sentries: %d members: %w", want.Booted, cube.ErrInvalid)
	}
	for id, n := range want.Restored {
		im, err := e.images.Image(id)
		if err != nil {
			return fmt.Errorf("pool: %w", err)
		}
		if n < 0 {
			return fmt.Errorf("pool of %s: %d members: %w", id, n, cube.ErrInvalid)
		}
		p.use(shapeOf(im))
	}
	want.Restored = maps.Clone(want.Restored) // the caller's own may change
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
func (p *pools) claim(id cube.ImageID) (member, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal()
	ms := p.restored[id]
	if len(ms) == 0 {
		return member{}, false
	}
	m := ms[0]
	p.used = time.Now()
	p.restored[id] = ms[1:]
	return m, true
}

// booted takes a booted sentry out, and remembers that its shape is in use.
func (p *pools) booted(sh shape) (life, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.use(sh) {
		p.signal()
	}
	ls := p.ready[sh]
	if len(ls) == 0 {
		return life{}, false
	}
	p.ready[sh] = ls[1:]
	p.used = time.Now()
	p.signal()
	return ls[0], true
}

// use remembers a shape, and reports whether it is new. Of other versions none is
// kept ready: their keepers are to end when their sandboxes have. Called with mu held.
func (p *pools) use(sh shape) bool {
	if _, known := p.shapes[sh]; known || sh.engine != p.e.Version() {
		return false
	}
	p.shapes[sh] = struct{}{}
	return true
}

// giveUp ends members until bytes are free, and reports whether that is so.
func (p *pools) giveUp(bytes int64) bool {
	p.mu.Lock()
	var end []life
	for id, ms := range p.restored {
		for len(ms) > 0 && bytes > 0 {
			end, bytes = append(end, ms[0].leave()), bytes-costOf(ms[0].image)
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

// lost drops a member that has died. It is called where the keeper's answers are
// read, and asks the keeper for nothing.
func (p *pools) lost(id string) {
	l, found := p.takeOut(id)
	if found {
		p.e.background(func() { p.e.bury(l) }) // the keeper still has its record
	}
}

// takeOut removes a member that another is to be made for.
func (p *pools) takeOut(id string) (_ life, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for im, ms := range p.restored {
		if i := slices.IndexFunc(ms, func(m member) bool { return m.life.id == id }); i >= 0 {
			m := ms[i]
			p.restored[im] = slices.Concat(ms[:i], ms[i+1:])
			p.signal()
			return m.leave(), true
		}
	}
	for sh, ls := range p.ready {
		if i := slices.IndexFunc(ls, func(l life) bool { return l.id == id }); i >= 0 {
			l := ls[i]
			p.ready[sh] = slices.Concat(ls[:i], ls[i+1:])
			p.signal()
			return l, true
		}
	}
	return life{}, false
}

// taken is what the members were promised, in bytes.
func (p *pools) taken() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var total int64
	for _, ms := range p.restored {
		for _, m := range ms {
			total += costOf(m.image)
		}
	}
	for _, ls := range p.ready {
		total += int64(len(ls)) * sentryCost
	}
	return total
}

// drain empties the pools for good and returns their members.
func (p *pools) drain() []life {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained = true
	var all []life
	for _, ms := range p.restored {
		for _, m := range ms {
			all = append(all, m.leave())
		}
	}
	for _, ls := range p.ready {
		all = append(all, ls...)
	}
	p.restored, p.ready = map[cube.ImageID][]member{}, map[shape][]life{}
	return all
}

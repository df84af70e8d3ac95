package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"

	cube "cubesandbox"
)

// SetPools implements cube.Engine. Booted members hold nothing here.
func (e *Engine) SetPools(ctx context.Context, pools cube.Pools) error {
	if pools.Booted < 0 {
		return fmt.Errorf("pool of booted sentries: %d members: %w", pools.Booted, cube.ErrInvalid)
	}
	for id, n := range pools.Restored {
		if _, err := cube.ParseImageID(string(id)); err != nil {
			return err
		}
		if n < 0 {
			return fmt.Errorf("pool of %s: %d members: %w", id, n, cube.ErrInvalid)
		}
	}
	e.m.mu.Lock()
	e.wanted = maps.Clone(pools.Restored)
	e.m.mu.Unlock()
	e.refill()
	return nil
}

// refill starts the filler, or has the one at work look again.
func (e *Engine) refill() {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.closed {
		return
	}
	e.again = true
	if e.filling != nil {
		return
	}
	e.filling = make(chan struct{})
	e.wg.Go(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for e.again && !e.closed {
			e.again = false
			e.poolErr = e.fill()
		}
		close(e.filling)
		e.filling = nil
	})
}

// fill brings each pool to its size. mu is held, and let go while a member is made.
func (e *Engine) fill() error {
	m := e.m
	var failed []error
	for id := range m.pool {
		for len(m.pool[id]) > e.wanted[id] {
			m.pool[id] = m.pool[id][1:]
		}
	}
	for id, n := range maps.Clone(e.wanted) {
		for len(m.pool[id]) < n && !e.closed && !e.again {
			l, err := e.member(id)
			if err != nil {
				failed = append(failed, fmt.Errorf("pool of %s: %w", id, err))
				break
			}
			m.pool[id] = append(m.pool[id], l)
		}
	}
	return errors.Join(failed...)
}

// member makes one. mu is held, and let go meanwhile.
func (e *Engine) member(id cube.ImageID) (*life, error) {
	m := e.m
	img := m.images[id]
	if img == nil {
		return nil, cube.ErrNotFound
	}
	bytes := charge(img.Limits)
	if err := m.admit(bytes); err != nil {
		return nil, err
	}
	m.second += bytes
	m.mu.Unlock()
	l, err := m.restore(e.ctx, img)
	m.mu.Lock()
	m.second -= bytes
	return l, err
}

// PoolsReady implements cube.Engine.
func (e *Engine) PoolsReady(ctx context.Context) error {
	for {
		e.m.mu.Lock()
		wait, err := e.filling, e.poolErr
		e.m.mu.Unlock()
		if wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

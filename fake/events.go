package fake

import (
	"context"

	cube "cubesandbox"
)

// eventBacklog is how far a reader may fall behind before it is closed.
const eventBacklog = 1024

// reader is one channel of Events.
type reader struct {
	ch     chan cube.Event
	engine *Engine
}

// Events implements cube.Engine.
func (e *Engine) Events(ctx context.Context) <-chan cube.Event {
	m := e.m
	r := &reader{ch: make(chan cube.Event, eventBacklog), engine: e}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.closed {
		close(r.ch)
		return r.ch
	}
	m.readers[r] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.drop(r)
	})
	return r.ch
}

// Emit sends an event to all readers, as if it had happened.
func (m *Machine) Emit(ev cube.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.emit(ev)
}

// emit closes the readers that have fallen behind. mu is held.
func (m *Machine) emit(ev cube.Event) {
	for r := range m.readers {
		select {
		case r.ch <- ev:
		default:
			m.drop(r)
		}
	}
}

// drop closes a reader once. mu is held.
func (m *Machine) drop(r *reader) {
	if _, ok := m.readers[r]; ok {
		delete(m.readers, r)
		close(r.ch)
	}
}

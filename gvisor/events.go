package gvisor

import (
	"context"
	"sync"

	cube "cubesandbox"
)

// eventBuffer is how far behind a reader of events may be.
const eventBuffer = 1024

// broadcast sends each event to every reader.
type broadcast struct {
	mu      sync.Mutex // guards the following
	readers map[chan cube.Event]struct{}
	closed  bool
}

// Events implements cube.Engine.
func (e *Engine) Events(ctx context.Context) <-chan cube.Event {
	ch := make(chan cube.Event, eventBuffer)
	b := &e.events
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(ch)
		return ch
	}
	if b.readers == nil {
		b.readers = map[chan cube.Event]struct{}{}
	}
	b.readers[ch] = struct{}{}
	context.AfterFunc(ctx, func() { b.drop(ch) })
	return ch
}

func (b *broadcast) drop(ch chan cube.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.readers[ch]; ok {
		delete(b.readers, ch)
		close(ch)
	}
}

func (b *broadcast) send(ev cube.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.readers {
		select {
		case ch <- ev:
		default:
			delete(b.readers, ch)
			close(ch)
		}
	}
}

func (b *broadcast) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for ch := range b.readers {
		delete(b.readers, ch)
		close(ch)
	}
}

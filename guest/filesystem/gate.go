package filesystem

import (
	"context"
	"sync"
)

// gate lets one pass at a time. Its zero value is ready.
type gate struct {
	once   sync.Once
	passed chan struct{} // holds an element from enter to leave
}

// line is where those who want to pass wait.
func (g *gate) line() chan struct{} {
	g.once.Do(func() { g.passed = make(chan struct{}, 1) })
	return g.passed
}

// try passes if nobody else has, and reports whether it did.
func (g *gate) try() bool {
	select {
	case g.line() <- struct{}{}:
		return true
	default:
		return false
	}
}

// enter waits until it can pass.
func (g *gate) enter(ctx context.Context) error {
	select {
	case g.line() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave lets the next one pass.
func (g *gate) leave() { <-g.line() }

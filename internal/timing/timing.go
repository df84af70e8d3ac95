// Package timing notes how long the phases of a request take, in a context, and
// writes them as a Server-Timing header (W3C Server Timing).
package timing

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

type key struct{}

// Times are the phases of one request.
type Times struct {
	mu     sync.Mutex // guards phases
	phases []phase
}

type phase struct {
	name string
	took time.Duration
}

// With returns a context whose phases are noted.
func With(ctx context.Context) (context.Context, *Times) {
	t := &Times{}
	return context.WithValue(ctx, key{}, t), t
}

// Phase begins a phase, named by a token of letters, digits and "-"; the function
// that it returns ends it. In a context that notes none it does nothing. A name
// that comes again adds to what it had.
func Phase(ctx context.Context, name string) (end func()) {
	t, _ := ctx.Value(key{}).(*Times)
	if t == nil {
		return func() {}
	}
	began := time.Now()
	return func() { t.add(name, time.Since(began)) }
}

func (t *Times) add(name string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.phases {
		if t.phases[i].name == name {
			t.phases[i].took += took
			return
		}
	}
	t.phases = append(t.phases, phase{name, took})
}

// Header is the value of a Server-Timing header: each phase with its duration in
// milliseconds, in the order in which they first ended, and the total last.
func (t *Times) Header(total time.Duration) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, p := range append(t.phases[:len(t.phases):len(t.phases)], phase{"total", total}) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s;dur=%.3f", p.name, float64(p.took)/float64(time.Millisecond))
	}
	return b.String()
}

package proxy

import (
	"errors"
	"sync"
	"time"

	cube "cubesandbox"
)

const (
	// doubtAfter is how long an agent may take to begin its answer before the server asks
	// it how it is. Uploads, and calls that take long for good reason, cost it a question
	// then, after twice as long, and so on, at last every mostDoubt.
	doubtAfter = time.Second
	mostDoubt  = time.Minute
)

// doubting has the server ask the agent when a request to it is not answered for a while,
// until the function that it returns is called. Other ports may take their time.
func (p *Proxy) doubting(t target, gen cube.Generation) (answered func()) {
	if t.port != envdPort {
		return func() {}
	}
	var mu sync.Mutex // guards the following
	var timer *time.Timer
	wait, over := p.doubtAfter, false
	doubt := func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		p.sandboxes.Doubt(t.id, gen)
		wait = min(2*wait, mostDoubt)
		timer.Reset(wait)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(wait, doubt)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// doubtful reports whether an error of a request makes one doubt the agent: it is the
// agent's port, or the agent could not connect to another one.
func doubtful(t target, err error) bool {
	return t.port == envdPort && !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrDead) || errors.Is(err, cube.ErrAgent)
}

package proxy

import (
	"errors"
	"time"

	cube "cubesandbox"
)

// doubtAfter is how long an agent may take to begin its answer before the server asks it
// how it is. Uploads, and calls that take long for good reason, cost it that one question.
const doubtAfter = time.Second

// doubting has the server ask the agent when a request to it is not answered for a while,
// until the function that it returns is called. Other ports may take their time.
func (p *Proxy) doubting(t target, gen cube.Generation) (answered func()) {
	if t.port != envdPort {
		return func() {}
	}
	timer := time.AfterFunc(p.doubtAfter, func() { p.sandboxes.Doubt(t.id, gen) })
	return func() { timer.Stop() }
}

// doubtful reports whether an error of a request makes one doubt the agent: it is the
// agent's port, or the agent could not connect to another one.
func doubtful(t target, err error) bool {
	return t.port == envdPort && !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrDead) || errors.Is(err, cube.ErrAgent)
}

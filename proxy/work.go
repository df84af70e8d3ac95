package proxy

import (
	"context"
	"sync"
)

// work counts what is under way, so that Shutdown can wait for it. net/http does
// not: it forgets connections after an upgrade, and cuts others without waiting for
// their handlers.
type work struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n becomes 0; nil while nobody waits
}

// begin counts one more, until end is called.
func (w *work) begin() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	return w.end
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// wait returns when nothing is under way, or ctx has ended.
func (w *work) wait(ctx context.Context) error {
	w.mu.Lock()
	if w.n == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.none == nil {
		w.none = make(chan struct{})
	}
	none := w.none
	w.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

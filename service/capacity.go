package service

import (
	"sync"

	cube "cubesandbox"
)

// ledger counts processors that are promised. Memory is counted by the engine,
// which knows what each image needs.
type ledger struct {
	total int64

	mu   sync.Mutex // guards used
	used int64
}

// reserve promises n, or says how many are free.
func (l *ledger) reserve(n int) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if free := l.total - l.used; int64(n) > free {
		return nil, &cube.CapacityError{What: "CPUs", Needed: int64(n), Free: max(0, free)}
	}
	l.used += int64(n)
	var once sync.Once
	return func() { once.Do(func() { l.free(n) }) }, nil
}

// take counts what runs already, room or not.
func (l *ledger) take(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used += int64(n)
}

func (l *ledger) free(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= int64(n)
}

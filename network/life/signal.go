package life

import "sync"

// signal is given once, by anybody.
type signal struct {
	c    chan struct{}
	once *sync.Once
}

func newSignal() signal { return signal{make(chan struct{}), new(sync.Once)} }

func (s signal) give() { s.once.Do(func() { close(s.c) }) }

func (s signal) given() bool {
	select {
	case <-s.c:
		return true
	default:
		return false
	}
}

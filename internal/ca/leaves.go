package ca

import (
	"container/list"
	"crypto/tls"
	"sync"
)

// leaves keeps the certificates that were asked for last, at most mostLeaves. The
// zero value is empty.
type leaves struct {
	mu     sync.Mutex // guards what follows
	byName map[string]*list.Element
	recent list.List // of namedLeaf, the one that was asked for last in front
}

type namedLeaf struct {
	name string
	cert *tls.Certificate
}

func (ls *leaves) get(name string) (*tls.Certificate, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	e, ok := ls.byName[name]
	if !ok {
		return nil, false
	}
	ls.recent.MoveToFront(e)
	return e.Value.(namedLeaf).cert, true
}

func (ls *leaves) put(name string, cert *tls.Certificate) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if e, ok := ls.byName[name]; ok {
		e.Value = namedLeaf{name, cert}
		ls.recent.MoveToFront(e)
		return
	}
	if ls.byName == nil {
		ls.byName = map[string]*list.Element{}
	}
	ls.byName[name] = ls.recent.PushFront(namedLeaf{name, cert})
	if ls.recent.Len() > mostLeaves {
		oldest := ls.recent.Back()
		delete(ls.byName, ls.recent.Remove(oldest).(namedLeaf).name)
	}
}

func (ls *leaves) len() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.byName)
}

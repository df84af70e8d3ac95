package gvisor

import (
	"context"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// early knows where lives that were made of the same pages write first: it is noted of one
// of them, or of the one that was saved to them, and those that follow have their own pages
// there from the beginning. It is
// forgotten with the engine, for the next life says it again.
type early struct {
	mu     sync.Mutex // guards the following
	known  map[cube.BaseID]writes
	asking map[string]bool
}

// writes is what is known of pages.
type writes struct {
	to     []keeperapi.PageRange
	source bool // as in asked
}

const (
	// earlyAfter is how long after a restore a life is asked: a little longer than what
	// counts (gvisor/patches/images.md).
	earlyAfter = 2500 * time.Millisecond
	// maxEarly is of how many pages it is known.
	maxEarly = 256
)

// of returns what is known of pages, or of those that they come from: their memory is laid
// out alike.
func (w *early) of(base cube.BaseID, bases []cube.BaseID) []keeperapi.PageRange {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, ok := w.known[base]; ok {
		return k.to
	}
	for _, b := range bases {
		if k, ok := w.known[b]; ok {
			return k.to
		}
	}
	return nil
}

// asked is one whom it is to be heard from where it wrote first.
type asked struct {
	base cube.BaseID
	life string
	// source: it was not made of these pages but saved to them, and runs on. What copies
	// say counts for more.
	source bool
}

// keys are what is asked once at a time.
func (a asked) keys() [2]string {
	if a.source {
		return [2]string{"source " + string(a.base), a.life}
	}
	return [2]string{"copy " + string(a.base), a.life}
}

// begin reports whether a life is to be asked. Whoever is told so calls end.
func (w *early) begin(a asked) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, ok := w.known[a.base]; ok && (a.source || !k.source) {
		return false
	}
	for _, key := range a.keys() {
		if w.asking[key] {
			return false
		}
	}
	for _, key := range a.keys() {
		w.asking[key] = true
	}
	return true
}

// end notes what was said, if that was anything.
func (w *early) end(a asked, said []keeperapi.PageRange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range a.keys() {
		delete(w.asking, key)
	}
	if k, ok := w.known[a.base]; len(said) == 0 || ok && (a.source || !k.source) {
		return
	}
	for other := range w.known {
		if len(w.known) < maxEarly {
			break
		}
		delete(w.known, other)
	}
	w.known[a.base] = writes{said, a.source}
}

// tells reports whether a sandbox is asked where it wrote first that was made of an image.
// Who finds out which pages it owns from the beginning learns something of what that one
// did: of a template, which is for everybody, only those tell it that are nobody's yet, the
// members of pools, while they are made.
func tells(kind cube.ImageKind, id cube.SandboxID) bool {
	return kind != cube.KindTemplate && id != nobodyID
}

// noteEarly asks a life, when it has gone on for a while, where it wrote first.
func (e *Engine) noteEarly(l life, base cube.BaseID, source bool) {
	a := asked{base, l.id, source}
	if base == "" || !l.k.info.Shares || !e.early.begin(a) {
		return
	}
	time.AfterFunc(earlyAfter, func() {
		e.background(func() { e.askEarly(e.ctx, l, a) })
	})
}

// noteEarlyNow is noteEarly for a life that will be somebody's from now on.
func (e *Engine) noteEarlyNow(ctx context.Context, l life, base cube.BaseID) {
	if a := (asked{base, l.id, false}); base != "" && l.k.info.Shares && e.early.begin(a) {
		e.askEarly(ctx, l, a)
	}
}

func (e *Engine) askEarly(ctx context.Context, l life, a asked) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var said []keeperapi.PageRange
	// One that has ended meanwhile says nothing: the next is asked.
	if l.call(ctx, keeperapi.MethodEarlyWrites, nil, &said) != nil {
		said = nil
	}
	e.early.end(a, said)
}

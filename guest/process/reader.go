package process

import (
	"context"
	"errors"
	"io"
	"time"
)

// reader is one reader of an output. Only its owner calls next; all that is in it is
// guarded by the output's mu.
type reader struct {
	next int64 // offset of the next byte
	// resumes: it can take its output up again. Then acked is the offset that its request
	// named: it has all before that.
	resumes bool
	acked   int64
	name    string // empty: it has given itself none
	// window: no more than left bytes are for this stream, and all of them are kept until
	// another request names a greater offset.
	window bool
	left   int64

	connected bool
	since     time.Time // when it read last, or since when it is away
	replaced  bool      // by another request of the same name
	late      bool      // it has stalled: nobody waits for it until it has caught up
	ready     chan struct{}
}

// hold is the offset from which on it needs what there is.
func (r *reader) hold() int64 {
	if r.resumes && (r.window || !r.connected) {
		return r.acked
	}
	return r.next
}

// reading says where and how a reader wants to read. The zero value is a client of E2B.
type reading struct {
	// resumes: it names where, and can take its output up again.
	resumes bool
	// tail: from the oldest byte that is kept; else from this offset.
	tail bool
	from int64
	// window bounds the stream, in bytes; 0: it goes on until the end.
	window int64
	// name is that of the reader; empty where it has none.
	name string
	// lives are those that it has read in; nil where it does not say.
	lives []life
}

// beyondError is why a reader cannot go on where it wants to: the output is not, or no
// longer, what the reader has read.
type beyondError struct {
	from, end int64
	other     bool   // it has read what no longer has been
	stranger  bool   // it has read another process
	lives     string // of this output
}

// subscribe adds a reader. One that does not say where it wants to begin gets what nobody
// has read yet, and what comes from now on while others are connected.
func (o *output) subscribe(how reading) (*reader, *beyondError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end, same := o.lineage.common(how.lives, o.end)
	if !same || how.from > end {
		return nil, &beyondError{how.from, end, end < o.end, !same, o.lineage.String()}
	}
	r := &reader{ready: make(chan struct{}, 1), connected: true, since: time.Now(), resumes: how.resumes, name: how.name}
	switch {
	case !how.resumes && o.anyConnected():
		r.next = o.end
	case !how.resumes:
		r.next = o.unread
	case how.tail:
		r.next = o.start
	default:
		r.next = how.from
	}
	r.acked, r.window, r.left = r.next, how.window > 0, how.window
	if r.resumes {
		o.takeOver(r)
	}
	o.readers[r] = struct{}{}
	o.progress()
	o.arm()
	signal(r.ready)
	return r, nil
}

func (o *output) anyConnected() bool {
	for r := range o.readers {
		if r.connected {
			return true
		}
	}
	return false
}

// takeOver puts r in the place of the reader that it was before. That is the one of its
// name, whose stream may not be known to have broken; or where it has none, of those
// without a name that are away and have read no more, the one that has read furthest.
func (o *output) takeOver(r *reader) {
	var was *reader
	for a := range o.readers {
		switch {
		case a.name != r.name:
		case r.name != "":
			a.replaced = true
			signal(a.ready)
			was = a
		case a.resumes && !a.connected && a.acked <= r.acked && (was == nil || a.acked > was.acked):
			was = a
		}
	}
	delete(o.readers, was)
}

// unsubscribe ends a reader's stream. One that can take it up again is waited for, unless
// it has all.
func (o *output) unsubscribe(r *reader, whole bool) {
	o.mu.Lock()
	if r.connected = false; whole || !r.resumes || r.late || r.replaced || o.forget {
		delete(o.readers, r)
	}
	r.since = time.Now()
	o.boundAway()
	o.account()
	o.progress()
	o.arm()
	o.mu.Unlock()
	o.history.bound()
}

// boundAway gives up those that have been away for the longest time, if they are many.
func (o *output) boundAway() {
	for {
		oldest, n := o.longestAway()
		if n <= maxAway {
			return
		}
		delete(o.readers, oldest)
	}
}

// longestAway returns the reader that has been away for the longest time, nil when none is
// away, and how many are.
func (o *output) longestAway() (oldest *reader, n int) {
	for r := range o.readers {
		if r.connected {
			continue
		}
		if n++; oldest == nil || r.since.Before(oldest.since) {
			oldest = r
		}
	}
	return oldest, n
}

// piece is what a reader gets: bytes of one stream, or the number of those that it does
// not get any more, or neither.
type piece struct {
	stream  stream
	data    []byte
	offset  int64
	dropped int64
}

// Ends of a stream before that of the output: it had a bound; its reader has asked again.
var (
	errWindow   = errors.New("the window has been read")
	errReplaced = errors.New("another request of this reader goes on in its place")
)

// take returns the next bytes for r. It fails with io.EOF when the output has ended and
// all was read, with errWindow when r has read all that it wanted, with errReplaced when
// somebody has taken its place, and when ctx ends. idle,
// if not nil, makes it return without bytes.
func (o *output) take(ctx context.Context, r *reader, idle <-chan time.Time) (piece, error) {
	for {
		p, more, err := o.try(r)
		if more || err != nil {
			return p, err
		}
		select {
		case <-r.ready:
		case <-idle:
			return piece{}, nil
		case <-ctx.Done():
			return piece{}, ctx.Err()
		}
	}
}

func (o *output) try(r *reader) (p piece, more bool, err error) {
	o.mu.Lock()
	switch {
	case r.replaced:
		err = errReplaced
	case r.next < o.start:
		p.dropped = o.start - r.next
		r.next = o.start
	case r.next == o.end && o.ended:
		err = io.EOF
	case r.window && r.left == 0:
		err = errWindow
	case r.next < o.end:
		p.offset = r.next
		p.stream, p.data = o.find(r.next).at(r.next)
		if r.window {
			p.data = p.data[:min(int64(len(p.data)), r.left)]
			r.left -= int64(len(p.data))
		}
		r.next += int64(len(p.data))
	default:
		o.mu.Unlock()
		return p, false, nil
	}
	if err == nil {
		o.last = time.Now()
		r.since = o.last
		o.unread = max(o.unread, r.next)
		r.late = r.late && r.next < o.end
		o.account()
		o.progress()
	}
	o.mu.Unlock()
	o.history.bound()
	return p, err == nil, err
}

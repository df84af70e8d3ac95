package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Time that streams have when the server stops.
const (
	// firstTime is how long one may take for its first message, from which its client
	// learns what to connect to again. Calls of gRPC to other ports than envd's, which
	// may be no streams at all, have for it what other requests have.
	firstTime = time.Second
	// unaryTime is how long a call of gRPC may take for its end after its first message.
	unaryTime = 250 * time.Millisecond
)

// errRestart is why a stream is ended when the server stops.
var errRestart = errors.New(restarting)

// stream is an answer of messages. When the server stops it ends between two of them,
// with the protocol's own word for a server that is away for a moment.
type stream struct {
	io.ReadCloser // the guest's
	ctx           context.Context
	answer        *http.Response
	messages      scanner
	begun         chan struct{} // closed after the first message
	// held is what was read and is not passed on yet: the beginning of a message; when
	// err is set the rest of all.
	held []byte
	open bool // a part of a message has been passed on
	err  error
}

// endable makes the request, to a port, one that is ended when the server stops, if it
// asks for a stream; then begun is to be closed after the first message.
func (r *recorder) endable(port uint16) (begun chan struct{}) {
	kind := framingOf(r.request.Header.Get("Content-Type"))
	if kind == unframed {
		return nil
	}
	begun = make(chan struct{})
	ctx := r.request.Context()
	r.whenStopping(func() {
		switch {
		case kind == connectFraming:
			pause(ctx, begun, firstTime)
		case port == envdPort:
			pause(ctx, begun, firstTime)
			pause(ctx, nil, unaryTime)
		default:
			pause(ctx, begun, 0)
			pause(ctx, nil, unaryTime)
		}
		r.leave(ctx)
	})
	return begun
}

// leave ends the request of ctx because the server stops, if it has not ended. A
// client that does not read holds up nothing.
func (r *recorder) leave(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return // the answer may be no more
	}
	http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(goodbyeTime))
	r.cancel(errRestart)
}

// pause returns when the time is over (0: it never is), ctx has ended or until is closed.
func pause(ctx context.Context, until <-chan struct{}, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-until:
	case <-ctx.Done():
	}
}

// watch makes an answer end well when the server stops, if it is a stream: at once.
// One of events is cut, as it would be at any other time; its client connects again.
func (r *recorder) watch(resp *http.Response, begun chan struct{}) {
	kind := framingOf(resp.Header.Get("Content-Type"))
	switch {
	case kind != unframed && begun != nil:
		resp.Body = &stream{ReadCloser: resp.Body, ctx: r.request.Context(), answer: resp, messages: scanner{framing: kind}, begun: begun}
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		ctx := r.request.Context()
		r.whenStopping(func() { r.leave(ctx) })
	}
}

// Read passes whole messages on, and such as are larger than b in pieces.
func (s *stream) Read(b []byte) (int, error) {
	n := copy(b, s.held)
	s.held = s.held[n:]
	if s.err != nil && n == 0 {
		return 0, s.err
	}
	if s.err != nil || n == len(b) {
		s.open = true
		return n, nil
	}
	for {
		m, err := s.ReadCloser.Read(b[n:])
		whole := s.messages.scan(b[n : n+m])
		if whole > 0 {
			whole += n
			s.begin()
			s.open = false
		}
		n += m
		switch {
		case err != nil:
			s.err = err
			return s.end(b[:n], whole), nil
		case whole > 0:
			s.held = append([]byte(nil), b[whole:n]...)
			return whole, nil
		case n == len(b):
			s.open = true
			return n, nil
		}
	}
}

// begin tells whoever waits that there was a message.
func (s *stream) begin() {
	select {
	case <-s.begun:
	default:
		close(s.begun)
	}
}

// end decides how the stream ends behind what has been read, and returns how much of
// that is to be passed on. What began after whole bytes of it will not be complete.
func (s *stream) end(b []byte, whole int) (n int) {
	if s.err == io.EOF || s.open || context.Cause(s.ctx) != errRestart {
		return len(b)
	}
	s.err = io.EOF
	if s.messages.last {
		return whole
	}
	s.held = s.messages.framing.goodbye()
	if s.answer.Trailer == nil {
		s.answer.Trailer = http.Header{}
	}
	s.messages.framing.trailers(s.answer.Trailer)
	return whole
}

// restart answers a request for a stream that has not begun when the server stops.
func restart(w http.ResponseWriter, r *http.Request) {
	kind := framingOf(r.Header.Get("Content-Type"))
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	kind.trailers(w.Header()) // in the headers: there is no body before them
	w.WriteHeader(http.StatusOK)
	w.Write(kind.goodbye())
}

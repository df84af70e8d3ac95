package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// filling says b again and again until nobody takes any more of it: then each buffer up
// to the client is full. It says so, and keeps the connection until the test ends.
func filling(t *testing.T, kind string, b []byte, full chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		fill(http.NewResponseController(w), w, b)
		full <- struct{}{}
		<-t.Context().Done()
	})
}

// fill writes until nothing could be written for a while.
func fill(c interface{ SetWriteDeadline(time.Time) error }, w io.Writer, b []byte) {
	for err := error(nil); err == nil; _, err = w.Write(b) {
		c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	}
}

// TestAtAStopAStreamWhoseClientDoesNotReadIsNotWaitedFor: of each kind that is ended, in
// each version of HTTP.
func TestAtAStopAStreamWhoseClientDoesNotReadIsNotWaitedFor(t *testing.T) {
	secure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	plain := &http.Transport{}
	t.Cleanup(secure.CloseIdleConnections)
	t.Cleanup(plain.CloseIdleConnections)
	for what, c := range map[string]struct {
		client       *http.Client
		scheme, kind string
	}{
		"Connect, HTTP/1.1":     {&http.Client{Transport: plain}, "http", "application/connect+proto"},
		"Connect, HTTP/2":       {over2(t), "http", "application/connect+proto"},
		"Connect, HTTP/2, TLS":  {&http.Client{Transport: secure}, "https", "application/connect+proto"},
		"gRPC-Web, HTTP/1.1":    {&http.Client{Transport: plain}, "http", "application/grpc-web+proto"},
		"events, HTTP/1.1":      {&http.Client{Transport: plain}, "http", "text/event-stream"},
		"events, HTTP/2":        {over2(t), "http", "text/event-stream"},
		"events, HTTP/1.1, TLS": {&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}, "https", "text/event-stream"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			id := w.sandbox()
			full := make(chan struct{})
			w.serve(id, 1, 80, filling(t, c.kind, message(0, string(make([]byte, 1<<20))), full))
			r := w.request(http.MethodPost, name(id, 80), procedure, http.NoBody, "Content-Type", c.kind)
			r.URL.Scheme = c.scheme
			resp, err := c.client.Do(r)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v (%v)", resp, err)
			}
			defer resp.Body.Close()
			<-full
			soon(t, w)
		})
	}
}

// soon stops the proxy, which must not need most of the time that requests have.
func soon(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.p.Shutdown(ctx); err != nil {
		t.Errorf("the stop: %v", err)
	}
}

// TestAtAStopAClientThatDoesNotReadIsNotWaitedFor: nor one that answers nothing.
func TestAtAStopAClientThatDoesNotReadIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	full := make(chan struct{})
	w.serve(id, 1, 80, upgrading("websocket", nil))
	w.serve(id, 1, 81, flooding(t, full))
	w.upgrade(w.dialPlain(), name(id, 80), "websocket")
	w.upgrade(w.dialPlain(), name(id, 81), "websocket")
	<-full
	soon(t, w)
}

// flooding begins a WebSocket's frame that is larger than all buffers, and says when
// they are full.
func flooding(t *testing.T, full chan<- struct{}) http.Handler {
	return agreeing("websocket", func(c net.Conn, _ *bufio.ReadWriter) {
		c.Write([]byte{0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0})
		fill(c, c, make([]byte, 1<<20))
		full <- struct{}{}
		<-t.Context().Done()
	})
}

// begun is a connection that says when something is about to be written.
type begun struct {
	net.Conn
	writing chan struct{}
}

func (b begun) Write(p []byte) (int, error) {
	close(b.writing)
	return b.Conn.Write(p)
}

// TestAWriteThatIsStuckDoesNotKeepAWebSocketFromLeaving is what the two before it show,
// at the one place where it could be stuck.
func TestAWriteThatIsStuckDoesNotKeepAWebSocketFromLeaving(t *testing.T) {
	w := newWorld(t)
	ours, theirs := net.Pipe() // which nobody reads
	defer theirs.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := w.request(http.MethodGet, "", "/", nil, "Upgrade", "websocket").WithContext(ctx)
	conn := begun{ours, make(chan struct{})}
	u := newUpgraded(conn, &recorder{proxy: w.p, request: r, cancel: cancel, end: &ending{}}, nil)
	written := make(chan error, 1)
	go func() {
		_, err := u.Write([]byte{0x81, 5, 'h', 'e'})
		written <- err
	}()
	<-conn.writing
	left := make(chan struct{})
	go func() {
		defer close(left)
		u.leave()
	}()
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		ours.Close()
		t.Error("it did not leave")
	}
	if err := <-written; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the write ended with %v", err)
	}
}

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const procedure = "/test.Test/Talk"

// talking is a service whose stream says "first", and then nothing.
func talking() http.Handler {
	return connect.NewServerStreamHandler(procedure, func(ctx context.Context, _ *connect.Request[emptypb.Empty], s *connect.ServerStream[wrapperspb.StringValue]) error {
		if err := s.Send(wrapperspb.String("first")); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
}

// TestAtAStopStreamsEndWithTheirOwnWord: real clients of each protocol hear at once
// that the server is away for a moment, and the stop waits for none of them.
func TestAtAStopStreamsEndWithTheirOwnWord(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, talking())
	secure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	plain := &http.Transport{}
	t.Cleanup(secure.CloseIdleConnections)
	t.Cleanup(plain.CloseIdleConnections)
	streams := map[string]*connect.ServerStreamForClient[wrapperspb.StringValue]{}
	for what, c := range map[string]struct {
		client  *http.Client
		scheme  string
		options []connect.ClientOption
	}{
		"Connect, HTTP/1.1":       {&http.Client{Transport: plain}, "http", nil},
		"Connect, JSON, HTTP/1.1": {&http.Client{Transport: plain}, "http", []connect.ClientOption{connect.WithProtoJSON()}},
		"Connect, HTTP/2, TLS":    {&http.Client{Transport: secure}, "https", nil},
		"Connect, HTTP/2":         {over2(t), "http", nil},
		"gRPC":                    {over2(t), "http", []connect.ClientOption{connect.WithGRPC()}},
		"gRPC, TLS":               {&http.Client{Transport: secure}, "https", []connect.ClientOption{connect.WithGRPC()}},
		"gRPC-Web, HTTP/1.1":      {&http.Client{Transport: plain}, "http", []connect.ClientOption{connect.WithGRPCWeb()}},
		"gRPC-Web, HTTP/2":        {over2(t), "http", []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		cc := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](c.client, c.scheme+"://"+w.addr+procedure, c.options...)
		q := connect.NewRequest(&emptypb.Empty{})
		q.Header().Set(idHeader, string(id))
		q.Header().Set(portHeader, "80")
		s, err := cc.CallServerStream(t.Context(), q)
		if err != nil || !s.Receive() || s.Msg().Value != "first" {
			t.Fatalf("%s: %v (%v)", what, s, err)
		}
		streams[what] = s
	}
	down := w.shutdown()
	for what, s := range streams {
		for s.Receive() {
			t.Errorf("%s: there is more: %v", what, s.Msg())
		}
		if err := s.Err(); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), restarting) {
			t.Errorf("%s: got %v", what, err)
		}
		s.Close()
	}
	if err := <-down; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

// post asks for a stream of Connect over a connection, and reads the head of the answer.
func post(t *testing.T, c net.Conn, host, kind string) *http.Response {
	t.Helper()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: 5\r\n\r\n\x00\x00\x00\x00\x00", procedure, host, kind)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodPost})
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != kind {
		t.Fatalf("%v (%v)", resp, err)
	}
	return resp
}

// saying answers with the bytes of a channel, as they come, until the client goes.
func saying(kind string, pieces <-chan []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		for {
			select {
			case b, ok := <-pieces:
				if !ok {
					return
				}
				w.Write(b)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
}

func TestAtAStopAStreamEndsBetweenTwoMessages(t *testing.T) {
	const kind = "application/connect+proto"
	bye := connectFraming.goodbye()
	first, second := message(0, "first"), message(0, "second")
	large := message(0, strings.Repeat("x", 100_000))
	for what, c := range map[string]struct {
		said [][]byte
		want []byte // nil: it is reset, behind a part of the second message
	}{
		"after a message":         {[][]byte{first}, append(first, bye...)},
		"in the next one":         {[][]byte{first, second[:7]}, append(first, bye...)},
		"in the head of the next": {[][]byte{append(first, second[:3]...)}, append(first, bye...)},
		"after one in pieces":     {[][]byte{first[:2], first[2:6], append(first[6:], second...)}, append(append(first, second...), bye...)},
		"after a large one":       {[][]byte{large[:50_000], append(large[50_000:], second[:1]...)}, append(large, bye...)},
		"in a large one":          {[][]byte{first, large[:70_000]}, nil},
		"in the last one":         {[][]byte{first, message(connectEnd, "{}")[:6]}, append(first, bye...)},
		"after the last one":      {[][]byte{first, message(connectEnd, "{}")}, append(first, message(connectEnd, "{}")...)},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			id := w.sandbox()
			pieces := make(chan []byte)
			w.serve(id, 1, 80, saying(kind, pieces))
			go func() {
				for _, b := range c.said {
					pieces <- b
				}
			}()
			resp := post(t, w.dialPlain(), name(id, 80), kind)
			got := make([]byte, len(first)+1)
			if c.want != nil {
				got = make([]byte, len(bytes.TrimSuffix(c.want, bye)))
			}
			if _, err := io.ReadFull(resp.Body, got); err != nil {
				t.Fatal(err)
			}
			down := w.shutdown()
			rest, err := io.ReadAll(resp.Body)
			got = append(got, rest...)
			switch {
			case c.want == nil && !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("got %d bytes (%v), want a reset", len(got), err)
			case c.want != nil && (err != nil || string(got) != string(c.want)):
				t.Errorf("got %.300q (%v), want %.300q", got, err, c.want)
			}
			if err := <-down; err != nil {
				t.Errorf("the stop: %v", err)
			}
		})
	}
}

func TestAStreamThatHasNotBegunAtAStopGetsItsFirstMessageAndThenEnds(t *testing.T) {
	const kind = "application/connect+json"
	w := newWorld(t)
	id := w.sandbox()
	asked, pieces := make(chan struct{}), make(chan []byte)
	h := saying(kind, pieces)
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		close(asked)
		h.ServeHTTP(rw, r)
	}))
	c := w.dialPlain()
	answer := make(chan *http.Response)
	go func() { answer <- post(t, c, name(id, 80), kind) }()
	<-asked
	down := w.shutdown()
	<-w.p.stopping.Done()
	pieces <- message(0, "{}")
	resp := <-answer
	want := append(message(0, "{}"), connectFraming.goodbye()...)
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
	if err := <-down; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

func TestAStreamThatDoesNotBeginIsAnsweredAtAStop(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	asked := make(chan struct{}, 3)
	w.serve(id, 1, envdPort, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server does not notice that the client goes
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	type result struct {
		kind string
		resp *http.Response
		body []byte
		err  error
	}
	results := make(chan result, 3)
	kinds := map[string]framing{"application/connect+proto": connectFraming, "application/grpc": grpcFraming, "application/grpc-web+proto": webFraming}
	for kind := range kinds {
		go func() {
			r := result{kind: kind}
			if r.resp, r.err = over2(t).Do(w.request(http.MethodPost, name(id, envdPort), procedure, strings.NewReader("\x00\x00\x00\x00\x00"), "Content-Type", kind)); r.err == nil {
				r.body, r.err = io.ReadAll(r.resp.Body)
				r.resp.Body.Close()
			}
			results <- r
		}()
	}
	for range kinds {
		<-asked
	}
	down := w.shutdown()
	for range kinds {
		r := <-results
		if r.err != nil || r.resp.StatusCode != 200 || r.resp.Header.Get("Content-Type") != r.kind || !bytes.Equal(r.body, kinds[r.kind].goodbye()) {
			t.Errorf("%s: %v, %q (%v)", r.kind, r.resp, r.body, r.err)
			continue
		}
		if status := r.resp.Header.Get("Grpc-Status"); (status == "14") != (r.kind == "application/grpc") {
			t.Errorf("%s: Grpc-Status %q", r.kind, status)
		}
	}
	if err := <-down; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

// TestAUnaryCallOfGRPCEndsAsItShouldAtAStop: also one that takes longer than a stream
// may for its first message, which a stream of envd's shows here.
func TestAUnaryCallOfGRPCEndsAsItShouldAtAStop(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	waiting := make(chan struct{})
	w.serve(id, 1, envdPort, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(waiting)
		<-r.Context().Done()
	}))
	stream := make(chan error, 1)
	go func() {
		resp, err := over2(t).Do(w.request(http.MethodPost, name(id, envdPort), procedure, strings.NewReader("\x00\x00\x00\x00\x00"), "Content-Type", "application/grpc"))
		if err == nil {
			err = resp.Body.Close()
		}
		stream <- err
	}()
	<-waiting
	asked, go2 := make(chan struct{}), make(chan struct{})
	w.serve(id, 1, 80, connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[wrapperspb.StringValue], error) {
		close(asked)
		<-go2
		return connect.NewResponse(wrapperspb.String("done")), nil
	}))
	cc := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](over2(t), "http://"+w.addr+procedure, connect.WithGRPC())
	q := connect.NewRequest(&emptypb.Empty{})
	q.Header().Set(idHeader, string(id))
	q.Header().Set(portHeader, "80")
	done := make(chan error, 1)
	go func() {
		resp, err := cc.CallUnary(t.Context(), q)
		if err == nil && resp.Msg.Value != "done" {
			err = fmt.Errorf("answered %v", resp.Msg)
		}
		done <- err
	}()
	<-asked
	down := w.shutdown()
	if err := <-stream; err != nil {
		t.Error(err)
	}
	close(go2)
	if err := errors.Join(<-done, <-down); err != nil {
		t.Error(err)
	}
}

// TestStreamsWithoutAWordForItAreCutAtOnce: never with an end that looks like one.
func TestStreamsWithoutAWordForItAreCutAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		dripping(nil).ServeHTTP(rw, r)
	}))
	w.serve(id, 1, 81, upgrading("lines", nil))
	streams := map[string]io.Reader{
		"events":           rawGet(t, w.dialPlain(), name(id, 80), "1.1"),
		"events, HTTP/1.0": rawGet(t, w.dialPlain(), name(id, 80), "1.0"),
		"events, TLS":      rawGet(t, w.secure(name(id, 80), "http/1.1"), name(id, 80), "1.1"),
		"an upgrade":       w.upgrade(w.dialPlain(), name(id, 81), "lines"),
		"an upgrade, TLS":  w.upgrade(w.secure(name(id, 81), "http/1.1"), name(id, 81), "lines"),
	}
	over2, err := over2(t).Do(w.request(http.MethodGet, name(id, 80), "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer over2.Body.Close()
	down := w.shutdown()
	for what, r := range streams {
		if _, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: it ended with %v, want a reset", what, err)
		}
	}
	if _, err := io.ReadAll(over2.Body); err == nil || !strings.Contains(err.Error(), "stream error") {
		t.Errorf("events, HTTP/2: got %v, want a stream error", err)
	}
	if err := <-down; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

// TestARequestThatHasEndedHearsNothingOfAStop: nor is it kept until then.
func TestARequestThatHasEndedHearsNothingOfAStop(t *testing.T) {
	w := newWorld(t)
	ended, other := &recorder{proxy: w.p}, &recorder{proxy: w.p}
	ended.whenStopping(func() { t.Error("it does") })
	told := make(chan struct{})
	other.whenStopping(func() { close(told) })
	ended.unhook()
	if err := <-w.shutdown(); err != nil {
		t.Error(err)
	}
	<-told
}

// noMore is an answer that must not be touched any more: net/http has taken it back.
type noMore struct {
	http.ResponseWriter
	t *testing.T
}

func (n noMore) SetWriteDeadline(time.Time) error {
	n.t.Error("the answer of a request that has ended is touched")
	return nil
}

func TestARequestThatWasForwardedLeavesNothingThatWaitsForAStop(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	hooks := 0
	rec := &recorder{ResponseWriter: noMore{httptest.NewRecorder(), t}, proxy: w.p}
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		hooks = len(rec.hooks)
		rw.Header().Set("Content-Type", "text/event-stream")
	}))
	r := w.request(http.MethodPost, name(id, 80), procedure, nil, "Content-Type", "application/connect+proto")
	if !w.p.forward(rec, r, target{id: id, port: 80}, w.routes[id]) || rec.status != 200 {
		t.Fatalf("it was not forwarded: %d", rec.status)
	}
	if hooks != 1 || len(rec.hooks) != 0 {
		t.Errorf("%d hooks while it is forwarded, %d then; want 1, 0", hooks, len(rec.hooks))
	}
	if rec.request.Context().Err() == nil {
		t.Error("the guest's request has not ended")
	}
	rec.leave(rec.request.Context()) // as one that was at work when the request ended
}

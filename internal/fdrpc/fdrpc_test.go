package fdrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func serve(t *testing.T, s *Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(l) })
	t.Cleanup(func() { l.Close(); s.Close(); wg.Wait() })
	return path
}

func dial(t *testing.T, path string, note func(string, json.RawMessage)) *Client {
	t.Helper()
	c, err := Dial(context.Background(), path, "test", 1, note)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDescriptorsArriveWithTheirMessage(t *testing.T) {
	s := NewServer("test", 1)
	s.Handle("swap", func(_ context.Context, r *Request) (any, []*os.File, error) {
		b, err := io.ReadAll(r.Files[0])
		if err != nil {
			return nil, nil, err
		}
		pr, pw, _ := os.Pipe()
		pw.WriteString(strings.ToUpper(string(b)))
		pw.Close()
		return map[string]int{"n": len(b)}, []*os.File{pr}, nil
	})
	c := dial(t, serve(t, s), nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			pr, pw, _ := os.Pipe()
			pw.WriteString("hello")
			pw.Close()
			defer pr.Close()
			var out struct{ N int }
			files, err := c.Call(context.Background(), "swap", nil, []*os.File{pr}, &out)
			if err != nil || len(files) != 1 || out.N != 5 {
				t.Errorf("got %v, %d files, %v", out, len(files), err)
				return
			}
			defer files[0].Close()
			if b, _ := io.ReadAll(files[0]); string(b) != "HELLO" {
				t.Errorf("got %q", b)
			}
		})
	}
	wg.Wait()
}

func TestErrorsKeepTheirCode(t *testing.T) {
	s := NewServer("test", 1)
	s.Handle("fail", func(context.Context, *Request) (any, []*os.File, error) {
		return nil, nil, Errorf("full", "no room")
	})
	c := dial(t, serve(t, s), nil)
	for method, want := range map[string]string{"fail": "full", "nope": "unknown-method"} {
		if _, err := c.Call(context.Background(), method, nil, nil, nil); Code(err) != want {
			t.Errorf("%s: got %v, want code %s", method, err, want)
		}
	}
}

func TestAnotherVersionIsRefusedByName(t *testing.T) {
	path := serve(t, NewServer("test", 1))
	_, err := Dial(context.Background(), path, "test", 2, nil)
	if Code(err) != "version" || !strings.Contains(err.Error(), "version 1") || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("got %v, want an error of code version that names both", err)
	}
}

func TestNotesReachEveryClientAndCloseFailsCalls(t *testing.T) {
	s := NewServer("test", 1)
	block := make(chan struct{})
	s.Handle("wait", func(ctx context.Context, _ *Request) (any, []*os.File, error) {
		close(block)
		<-ctx.Done()
		return nil, nil, nil
	})
	path := serve(t, s)
	got := make(chan string, 2)
	note := func(m string, _ json.RawMessage) { got <- m }
	c := dial(t, path, note)
	dial(t, path, note)
	s.Notify("died", 1)
	for range 2 {
		if m := <-got; m != "died" {
			t.Errorf("got note %q", m)
		}
	}
	failed := make(chan error, 1)
	go func() { _, err := c.Call(context.Background(), "wait", nil, nil, nil); failed <- err }()
	<-block
	c.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestOversizeIsAnErrorNotATruncation(t *testing.T) {
	s := NewServer("test", 1)
	s.Handle("big", func(context.Context, *Request) (any, []*os.File, error) {
		return strings.Repeat("x", maxPacket), nil, nil
	})
	c := dial(t, serve(t, s), nil)
	if _, err := c.Call(context.Background(), "big", nil, nil, nil); Code(err) != "internal" {
		t.Errorf("answer: got %v", err)
	}
	if _, err := c.Call(context.Background(), "big", strings.Repeat("x", maxPacket), nil, nil); Code(err) != "invalid" || errors.Is(err, ErrClosed) {
		t.Errorf("request: got %v, want code invalid", err)
	}
}

func TestWhatRunsIsAnsweredAndWhatComesAfterIsRefused(t *testing.T) {
	s := NewServer("test", 1)
	begun, finish := make(chan struct{}), make(chan struct{})
	s.Handle("slow", func(context.Context, *Request) (any, []*os.File, error) {
		close(begun)
		<-finish
		return 1, nil, nil
	})
	path := serve(t, s)
	c := dial(t, path, nil)
	slow := make(chan error, 1)
	go func() { _, err := c.Call(context.Background(), "slow", nil, nil, nil); slow <- err }()
	<-begun
	s.Refuse(Errorf("leaving", "another takes over"))
	if _, err := c.Call(context.Background(), "slow", nil, nil, nil); Code(err) != "leaving" {
		t.Errorf("after Refuse: got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Idle(ctx); err == nil {
		t.Error("it is idle while a request runs")
	}
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	close(finish)
	if err := <-slow; err != nil {
		t.Errorf("what ran when the server closed: got %v, want its answer", err)
	}
	<-closed
	if err := s.Idle(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestAClientThatDoesNotReadHoldsNobody(t *testing.T) {
	s := NewServer("test", 1)
	path := serve(t, s)
	var d net.Dialer
	conn, err := d.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stopped := conn.(*net.UnixConn)
	if err := send(stopped, message{ID: 1, Method: "hello", Body: json.RawMessage(`{"protocol":"test","version":1}`)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := receive(stopped, make([]byte, maxPacket)); err != nil {
		t.Fatal(err)
	}
	got := make(chan struct{}, 1000)
	dial(t, path, func(string, json.RawMessage) { got <- struct{}{} })
	text := strings.Repeat("x", maxPacket/2)
	for range 40 { // far more than its socket holds
		s.Notify("died", text)
		<-got
	}
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	if n != 1 {
		t.Errorf("%d connections are left, want the one that reads", n)
	}
}

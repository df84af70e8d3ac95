package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestShutdownWaitsForRequestsAndAcceptsNoMore(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	answer := make(chan struct{})
	w.serve(id, 1, 81, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(rw, "first")
		rw.(http.Flusher).Flush()
		<-answer
		fmt.Fprintln(rw, "last")
	}))
	r := rawGet(t, w.dialPlain(), name(id, 81), "1.1")
	down := w.shutdown()
	eventually(t, "no new connection is accepted", func() bool {
		c, err := net.Dial("tcp", w.addr)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	close(answer)
	if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), "0\r\n\r\n") || !strings.Contains(string(rest), "last") {
		t.Errorf("the request: %q (%v)", rest, err)
	}
	if err := <-down; err != nil {
		t.Errorf("got %v", err)
	}
}

// shutdown begins one that waits for as long as it must.
func (w *world) shutdown() <-chan error {
	down := make(chan error, 1)
	go func() { down <- w.p.Shutdown(w.t.Context()) }()
	return down
}

// TestShutdownCutsWhatDoesNotEnd: as a reset, so that nobody takes half an answer for
// a whole one; nothing of the proxy runs afterwards.
func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("", func(t *testing.T) {
		w := newWorld(t)
		id := w.sandbox()
		w.serve(id, 1, 80, dripping(nil))
		w.serve(id, 1, 81, upgrading("lines", nil))
		w.serve(id, 1, 82, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			for b := make([]byte, 1<<20); ; {
				if _, err := rw.Write(b); err != nil {
					return
				}
			}
		}))
		w.serve(id, 1, 83, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			http.NewResponseController(rw).EnableFullDuplex()
			fmt.Fprintln(rw, "first")
			rw.(http.Flusher).Flush()
			io.Copy(io.Discard, r.Body)
		}))
		streams := map[string]io.Reader{
			"chunked":          rawGet(t, w.dialPlain(), name(id, 80), "1.1"),
			"until the end":    rawGet(t, w.dialPlain(), name(id, 80), "1.0"),
			"upgraded":         w.upgrade(w.dialPlain(), name(id, 81), "lines"),
			"TLS":              rawGet(t, w.secure(name(id, 80), "http/1.1"), name(id, 80), "1.1"),
			"upload under way": w.uploading(name(id, 83)),
		}
		deaf := w.dialPlain() // it does not read its answer
		fmt.Fprintf(deaf, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name(id, 82))
		if _, err := io.ReadFull(deaf, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		silent := w.dialPlain()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.p.Shutdown(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		for what, r := range streams {
			if _, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the stream ended with %v, want a reset", what, err)
			}
		}
		if _, err := silent.Read(make([]byte, 1)); err == nil {
			t.Error("a silent connection is still open")
		}
		if w.p.working.n != 0 || w.p.serving.n != 0 {
			t.Errorf("%d requests and %d calls of Serve are left", w.p.working.n, w.p.serving.n)
		}
	})
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// uploading sends half a body and reads the answer up to "first".
func (w *world) uploading(host string) *bufio.Reader {
	w.t.Helper()
	c := w.dialPlain()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nhalf", host)
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.TrimSpace(line) == "first" {
			return r
		}
	}
}

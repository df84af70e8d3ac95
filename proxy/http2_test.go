package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestManyStreamsOfOneConnectionAreServedAtOnce (E2B 1418): as many as a client with
// hundreds of commands under way has, and each answer comes to its own request.
func TestManyStreamsOfOneConnectionAreServedAtOnce(t *testing.T) {
	const many = 300
	w := newWorld(t)
	id := w.sandbox()
	var here atomic.Int32
	all := make(chan struct{})
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if here.Add(1) == many {
			close(all)
		}
		select {
		case <-all: // nobody is answered before all have come
			fmt.Fprint(rw, r.URL.Path)
		case <-r.Context().Done():
		}
	}))
	client := over2(t)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			path := fmt.Sprintf("/%d", i)
			resp, err := client.Do(w.request(http.MethodGet, name(id, 80), path, nil))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != path || resp.ProtoMajor != 2 {
				t.Errorf("%s: got %q over %s (%v)", path, b, resp.Proto, err)
			}
		})
	}
	wg.Wait()
}

// TestAtAStopAnHTTP2ConnectionIsToldAndItsRequestsAreAnswered (E2B 1418): whoever asks
// for more meanwhile is not met by a connection that just closes.
func TestAtAStopAnHTTP2ConnectionIsToldAndItsRequestsAreAnswered(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	here, answer := make(chan struct{}), make(chan struct{})
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		here <- struct{}{}
		<-answer
		fmt.Fprint(rw, "whole")
	}))
	client := over2(t)
	heard := make(chan string, 5)
	for range cap(heard) {
		go func() {
			resp, err := client.Do(w.request(http.MethodGet, name(id, 80), "/", nil))
			if err != nil {
				heard <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			heard <- strings.TrimSpace(fmt.Sprint(string(b), " ", err))
		}()
	}
	for range cap(heard) {
		<-here
	}
	down := w.shutdown()
	<-w.p.stopping.Done()
	close(answer)
	for range cap(heard) {
		if got := <-heard; got != "whole <nil>" {
			t.Errorf("got %q", got)
		}
	}
	if err := <-down; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

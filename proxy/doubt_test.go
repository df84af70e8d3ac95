package proxy

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
)

// doubted waits until the agent of a life is doubted.
func (w *world) doubted(id cube.SandboxID, gen int) {
	w.t.Helper()
	eventually(w.t, "its agent is doubted", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Contains(w.doubts, fmt.Sprintf("%s-%d", id, gen))
	})
}

func atOnce(p *Proxy) { p.doubtAfter = time.Millisecond }

// status is that of an answer of a port of a sandbox.
func (w *world) status(id cube.SandboxID, port int) int {
	w.t.Helper()
	code, _, _ := w.get(fmt.Sprintf("%d-%s.localhost", port, id), "/health")
	return code
}

func TestAnAgentThatDoesNotAnswerIsDoubtedAndTheRequestWaitsOn(t *testing.T) {
	w := newWorld(t, atOnce)
	id := w.sandbox()
	asked := make(chan struct{})
	w.serve(id, 1, envdPort, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		<-asked
		rw.WriteHeader(http.StatusNoContent)
	}))
	answer := make(chan int, 1)
	go func() { answer <- w.status(id, envdPort) }()
	w.doubted(id, 1)
	eventually(t, "it is doubted again", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.doubts) > 3
	})
	close(asked)
	if got := <-answer; got != http.StatusNoContent {
		t.Errorf("the request was answered %d, want what the agent says at last", got)
	}
}

func TestAnAgentThatEndsTheConnectionIsDoubted(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	w.at(id, 1, envdPort, ln.Addr().String())
	if got := w.status(id, envdPort); got != http.StatusBadGateway {
		t.Errorf("got %d, want 502", got)
	}
	w.doubted(id, 1)
}

func TestAnotherPortMayTakeItsTime(t *testing.T) {
	w := newWorld(t, atOnce)
	slow, stuck := w.sandbox(), w.sandbox()
	end := make(chan struct{})
	waits := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })
	w.serve(slow, 1, 8000, waits)
	w.serve(stuck, 1, envdPort, waits)
	var asking sync.WaitGroup
	asking.Go(func() { w.status(slow, 8000) })
	eventually(t, "the first request is under way", func() bool { return w.touched() == 1 })
	asking.Go(func() { w.status(stuck, envdPort) })
	w.doubted(stuck, 1)
	close(end)
	asking.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.doubts, fmt.Sprintf("%s-1", slow)) {
		t.Error("an agent is doubted since a server beside it takes its time")
	}
}

func TestAnAnswerInTimeIsNoDoubt(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.doubtAfter = time.Minute })
	id := w.sandbox()
	w.serve(id, 1, envdPort, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNotFound) }))
	if got := w.status(id, envdPort); got != http.StatusNotFound {
		t.Errorf("got %d, want what the agent says", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.doubts) > 0 {
		t.Errorf("there are doubts: %v", w.doubts)
	}
}

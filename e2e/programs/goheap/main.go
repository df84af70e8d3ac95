// Command goheap is a Go program under work, for tests: its collector runs all the time,
// over blocks that are compared byte by byte, trees, and deep stacks. It answers as
// guest/work.py describes.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: goheap ADDRESS")
		os.Exit(2)
	}
	debug.SetGCPercent(15)
	runtime.GOMAXPROCS(4) // more threads than processors
	p := &program{identity: rand.Text()}
	for _, name := range []string{"left", "right"} {
		p.workers = append(p.workers, &worker{name: name, do: newHeap(p, name)})
	}
	p.workers = append(p.workers, &worker{name: "trees", do: &trees{p: p}}, &worker{name: "stacks", do: &stacks{p: p}})
	for _, w := range p.workers {
		go w.run()
	}
	if err := http.ListenAndServe(os.Args[1], p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// task is what a worker does.
type task interface {
	// once is one round, the n-th.
	once(n uint64)
	// check compares all that is held.
	check()
}

// worker does a task without pause.
type worker struct {
	name string
	do   task

	mu     sync.Mutex // guards the task and the following
	rounds uint64
}

func (w *worker) run() {
	for {
		w.mu.Lock()
		w.do.once(w.rounds)
		w.rounds++
		w.mu.Unlock()
	}
}

// program is what answers.
type program struct {
	identity string
	workers  []*worker

	mu     sync.Mutex // guards the following
	mark   string
	marks  []mark
	broken []string
}

type mark struct {
	Name   string            `json:"name"`
	Rounds map[string]uint64 `json:"rounds"`
}

func (p *program) wrong(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.broken) < 20 {
		p.broken = append(p.broken, fmt.Sprintf(format, args...))
	}
}

func (p *program) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mark
}

func (p *program) rounds(check bool) map[string]uint64 {
	out := map[string]uint64{}
	for _, w := range p.workers {
		w.mu.Lock()
		if check {
			w.do.check()
		}
		out[w.name] = w.rounds
		w.mu.Unlock()
	}
	return out
}

// spoil changes a byte of a heap.
func (p *program) spoil(w *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.do.(*heap).pieces[1][0] ^= 1
}

// ServeHTTP implements http.Handler.
func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("name")
	if name != "" {
		p.mu.Lock()
		p.mark = name
		p.mu.Unlock()
	}
	if strings.HasSuffix(r.URL.Path, "/spoil") {
		p.spoil(p.workers[0])
	}
	rounds := p.rounds(strings.HasSuffix(r.URL.Path, "/check"))
	p.mu.Lock()
	defer p.mu.Unlock()
	if name != "" {
		p.marks = append(p.marks, mark{name, rounds})
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{ // a client that is gone hears nothing
		"broken": append([]string{}, p.broken...), "identity": p.identity, "pid": os.Getpid(), "bytes": 2 * pieces * largest / 2,
		"rounds": rounds, "marks": append([]mark{}, p.marks...),
	})
}

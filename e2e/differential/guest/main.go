// Command guest is the program of the differential test inside a sandbox. It owns
// memory and files of all kinds, and changes them on command; its state follows from
// the commands so far, so that two sandboxes can be compared.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"

	"cubesandbox/e2e/differential/guestapi"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "hash" {
		os.Exit(hashFile(os.Args[2]))
	}
	g := newGuest()
	var mu sync.Mutex
	handler := func(w http.ResponseWriter, r *http.Request) {
		var q guestapi.Request
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		a, err := g.obey(q)
		if err != nil {
			a.Error = err.Error()
		}
		json.NewEncoder(w).Encode(a) // who asked sees that it is cut
	}
	err := http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", guestapi.Port), http.HandlerFunc(handler))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (g *guest) obey(q guestapi.Request) (a guestapi.Answer, err error) {
	switch q.Do {
	case guestapi.Digest, guestapi.Chunks, guestapi.Bytes:
		// The load is for saves and operations; here it would only take the processor.
		defer g.load.rest()()
	}
	switch q.Do {
	case guestapi.Begin:
		return a, g.begin(q)
	case guestapi.Operations:
		for _, o := range operations() {
			if o.can(g.mode) {
				a.Operations = append(a.Operations, o.name)
			}
		}
	case guestapi.Operate:
		a.Result, err = g.operate(q)
	case guestapi.Digest:
		a.Parts, a.Disagree, err = g.digest(q.Deep, q.Ways)
	case guestapi.Chunks:
		a.Sums, err = g.chunks(q.Part)
	case guestapi.Bytes:
		a.Bytes, err = g.bytes(q.Part, q.Offset)
	case guestapi.Flip:
		err = g.flip(q.Part, q.Offset)
	case guestapi.Load:
		err = g.startLoad()
	case guestapi.Check:
		a.Written, err = g.load.check()
	default:
		err = fmt.Errorf("it cannot %q", q.Do)
	}
	return a, err
}

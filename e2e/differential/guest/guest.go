package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"unsafe"

	"cubesandbox/e2e/differential/guestapi"
)

// guest is all state that is compared.
type guest struct {
	mode    guestapi.Mode
	regions regions
	// behind are the descriptors of the files that regions are mapped from.
	behind map[string]int
	sysv   int
	files  []*file
	// keep are the descriptors that workers keep.
	keep    map[int]bool
	workers []*worker
	names   int // of workers and files so far
	// skip counts down to the store that is left out.
	skip int
	load *load
}

// operation is one of the table. What it does and returns follows from r and the state.
type operation struct {
	name string
	// memory, files: what of the state it needs.
	memory, files bool
	do            func(g *guest, r *rand.Rand) (string, error)
}

func operations() []operation {
	return slices.Concat(writes(), transfers(), mappings(), processes(), fileMappings(), fileWrites(), fileNames())
}

// can reports whether a mode has what an operation needs.
func (o operation) can(m guestapi.Mode) bool {
	return (!o.memory || m != guestapi.FilesOnly) && (!o.files || m != guestapi.MemoryOnly)
}

func newGuest() *guest { return &guest{behind: map[string]int{}, keep: map[int]bool{}} }

// begin makes the state.
func (g *guest) begin(q guestapi.Request) error {
	if g.mode != "" {
		return errors.New("it has begun")
	}
	r := rand.New(rand.NewPCG(q.Seed, 0))
	g.mode = q.Mode
	if g.mode != guestapi.FilesOnly {
		if err := g.makeRegions(r); err != nil {
			return err
		}
	}
	if g.mode != guestapi.MemoryOnly {
		if err := g.makeFiles(r, q.Large); err != nil {
			return err
		}
	}
	if g.mode == guestapi.Both {
		if err := g.makeFileRegions(r); err != nil {
			return err
		}
	}
	if g.mode == guestapi.FilesOnly {
		return nil
	}
	writeCode(g.regions.get("code"), r)
	for range 3 {
		if _, err := g.newWorker(); err != nil {
			return err
		}
	}
	_, err := killWorker(g, r) // memory that a dead one shared
	return err
}

// operate does one operation.
func (g *guest) operate(q guestapi.Request) (string, error) {
	for _, o := range operations() {
		if o.name != q.Operation {
			continue
		}
		if !o.can(g.mode) {
			return "", fmt.Errorf("%s: not with %s", o.name, g.mode)
		}
		name := fnv.New64a()
		name.Write([]byte(o.name)) // never fails
		g.skip = q.LeaveOut
		defer func() { g.skip = 0 }()
		return o.do(g, rand.New(rand.NewPCG(q.Seed, name.Sum64())))
	}
	return "", fmt.Errorf("no operation %q", q.Operation)
}

// left reports whether this store is the one to be left out.
func (g *guest) left() bool {
	g.skip--
	return g.skip == 0
}

// fill is a store of n bytes, and stride one of a byte each so many.
func (g *guest) fill(addr, n uintptr, seed uint64) {
	if !g.left() {
		fill(addr, n, seed)
	}
}

func (g *guest) stride(addr, n, step uintptr, seed uint64) {
	if !g.left() {
		stride(addr, n, step, seed)
	}
}

// newWorker forks one more; of more than three the oldest ends.
func (g *guest) newWorker() (*worker, error) {
	g.names++
	w, err := fork(fmt.Sprintf("worker %d", g.names), g.regions, g.keep)
	if err != nil {
		return nil, err
	}
	g.workers = append(g.workers, w)
	if len(g.workers) > 3 {
		oldest := g.workers[0]
		g.workers = g.workers[1:]
		if _, err := oldest.end(oldest.waiting); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// idle is any worker that takes commands; there is always one.
func (g *guest) idle(r *rand.Rand) (*worker, error) {
	free := slices.DeleteFunc(slices.Clone(g.workers), func(w *worker) bool { return w.waiting })
	if len(free) == 0 {
		return g.newWorker()
	}
	return free[r.IntN(len(free))], nil
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Package storetest is one suite that every cube.Store must pass: each sentence of
// the contract in store.go is a subtest that is named after the promise, with kill
// -9 and contexts that end included. What a power cut leaves only a real disk can
// show: that is the store's own test.
//
// A store's own tests call Run, and, where it outlives its process, Killed, which
// needs Main in their TestMain.
package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	cube "cubesandbox"
)

// Open opens the store that is kept under a path, or makes it. The folder of the
// path is there and empty before the first time.
type Open func(path string) (cube.Store, error)

// promise is one sentence of the contract.
type promise struct {
	name string
	show func(x *X)
}

// Run shows every promise but for those of Killed, each with a new store.
func Run(t *testing.T, open Open) {
	show(t, open, slices.Concat(applies(), batches(), lists(), contexts(), syncs(), lives()))
}

// Killed shows what is promised for the end of the process.
func Killed(t *testing.T, open Open) { show(t, open, kills()) }

func show(t *testing.T, open Open, promises []promise) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			seed := rand.Uint64()
			x := &X{T: t, ctx: ctx, open: open, path: filepath.Join(t.TempDir(), "store"), gen: generator{rand.New(rand.NewPCG(seed, 0))}}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			x.s = x.opened()
			defer func() { x.noError(x.s.Close(), "close") }()
			p.show(x)
		})
	}
}

// X is what a promise is shown with.
type X struct {
	*testing.T
	ctx  context.Context
	open Open
	path string
	s    cube.Store
	gen  generator
}

func (x *X) opened() cube.Store {
	x.Helper()
	s, err := x.open(x.path)
	if err != nil {
		x.Fatalf("open: %v", err)
	}
	return s
}

// reopen closes the store and opens it again.
func (x *X) reopen() {
	x.Helper()
	x.noError(x.s.Close(), "close")
	x.s = x.opened()
}

func (x *X) noError(err error, what string) {
	x.Helper()
	if err != nil {
		x.Fatalf("%s: %v", what, err)
	}
}

func (x *X) wantError(err, want error, what string) {
	x.Helper()
	if !errors.Is(err, want) {
		x.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func (x *X) apply(b cube.Batch) {
	x.Helper()
	x.noError(x.s.Apply(x.ctx, b), "apply")
}

func (x *X) put(rs ...cube.Record) {
	x.Helper()
	x.apply(cube.Batch{Sandboxes: rs})
}

// holds checks that a record is there as it was put.
func (x *X) holds(want cube.Record) {
	x.Helper()
	got, err := x.s.Sandbox(x.ctx, want.ID)
	if err != nil {
		x.Errorf("get %s: %v", want.ID, err)
		return
	}
	x.same(got, want)
}

// all are the sandboxes.
func (x *X) all() []cube.Record {
	x.Helper()
	rs, err := x.s.Sandboxes(x.ctx)
	x.noError(err, "list")
	return rs
}

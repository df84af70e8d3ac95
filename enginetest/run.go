package enginetest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	cube "cubesandbox"
)

// promise is one sentence of the contract.
type promise struct {
	name string
	show func(x *X)
}

// promises in the order of engine.go.
func promises(h Harness) []promise {
	return slices.Concat(
		general(), bootPromises(), createPromises(), savePromises(), pausePromises(),
		rollbackPromises(), clonePromises(), killPromises(), lookPromises(), dialPromises(),
		poolPromises(), eventPromises(), closePromises(),
	)
}

// Run shows every promise that h does not name as unsupported.
func Run(t *testing.T, h Harness) {
	x := &X{h: h, timeout: time.Minute}
	e, err := h.Open(t.Context())
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	x.e = e
	defer func() {
		if err := x.e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	known := map[string]bool{}
	for f := range imageFaults {
		known[string(f)] = true
	}
	for _, f := range []Fault{SaveFails, StartFails, OutOfMemory} {
		known[string(f)] = true
	}
	for _, p := range promises(h) {
		known[p.name] = true
		if _, no := h.Unsupported[p.name]; no {
			continue
		}
		t.Run(p.name, func(t *testing.T) { x.run(t, p) })
	}
	t.Run("what is not shown is named", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(h.Unsupported)) {
			t.Logf("not shown: %s: %s", name, h.Unsupported[name])
			if !known[name] {
				t.Errorf("the suite has no promise and no fault %q", name)
			}
		}
		for f := range h.Faults {
			if _, no := h.Unsupported[string(f)]; no {
				t.Errorf("fault %q is both brought about and unsupported", f)
			}
		}
		for f := range known {
			if _, fault := imageFaults[Fault(f)]; fault && h.Faults[Fault(f)] == nil && h.Unsupported[f] == "" {
				t.Errorf("fault %q is neither brought about nor named as unsupported", f)
			}
		}
	})
}

// run shows one promise and finds out what it left.
func (x *X) run(t *testing.T, p promise) {
	ctx, cancel := context.WithTimeout(t.Context(), x.timeout)
	defer cancel()
	x.T, x.ctx = t, ctx
	left := x.h.Begin(t)
	before := x.images()
	defer func() { // a promise that fails ends its goroutine
		x.clean(before)
		if err := left(); err != nil {
			t.Errorf("left behind:\n%v", err)
		}
	}()
	p.show(x)
}

// clean closes all connections, ends all sandboxes and deletes the images that
// came since.
func (x *X) clean(before []cube.ImageID) {
	x.Helper()
	for _, c := range x.conns {
		c.Close()
	}
	x.conns = nil
	x.noError(x.e.SetPools(x.ctx, cube.Pools{}), "empty the pools")
	x.noError(x.e.PoolsReady(x.ctx), "wait for empty pools")
	all, err := x.e.Sandboxes(x.ctx)
	x.noError(err, "list")
	for _, s := range all {
		x.noError(x.e.Kill(x.ctx, s.ID), "kill")
	}
	for _, id := range x.images() {
		if !slices.Contains(before, id) {
			x.noError(x.h.DeleteImage(x.ctx, id), "delete image")
		}
	}
}

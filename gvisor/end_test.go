package gvisor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// TestALifeThatIsNotToBeIsEndedWhateverFails: what cannot be ended when the verb fails
// is ended later, and does not wait for the next engine.
func TestALifeThatIsNotToBeIsEndedWhateverFails(t *testing.T) {
	fails := errors.New("not now")
	for name, begin := range map[string]func(*testing.T, *Engine) error{
		"create from a template": func(t *testing.T, e *Engine) error {
			_, err := e.install(t.Context(), life{lifeA, e.keepers.current}, keeperapi.Labels{Sandbox: boxID}, 0)
			return err
		},
		"create from a booted sentry": func(t *testing.T, e *Engine) error {
			sh := shape{rootfs: "gone"}
			e.pools.want.Booted = 1
			e.pools.ready[sh] = []life{{lifeA, e.keepers.current}}
			_, err := e.bootedLife(t.Context(), source{k: e.keepers.current, image: cube.Image{Rootfs: "gone"}}, keeperapi.Labels{})
			return err
		},
		"a pool is trimmed": func(t *testing.T, e *Engine) error {
			e.pools.endAll([]life{{lifeA, e.keepers.current}})
			return fails
		},
		"a member comes when the pools are emptied": func(t *testing.T, e *Engine) error {
			e.pools.drain()
			e.pools.add(func() { t.Error("it is entered") }, life{lifeA, e.keepers.current})
			return fails
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, f := fakeEngine(t, 0)
			f.on(keeperapi.MethodLabel, func(context.Context, *fdrpc.Request) error { return fails })
			release, failed, _ := stuck(f)
			if err := begin(t, e); err == nil {
				t.Fatal("it does not fail")
			}
			if got := soon(t, failed, "a try to end it"); got != lifeA {
				t.Fatalf("life %s is ended, want %s", got, lifeA)
			}
			release()
			if got := soon(t, f.kills, "it is ended"); got != lifeA {
				t.Errorf("life %s is ended, want %s", got, lifeA)
			}
		})
	}
}

// TestALifeWhoseKeeperDiesAsItIsEndedIsEndedByTheNext: at once, so that what takes its
// place never runs beside it.
func TestALifeWhoseKeeperDiesAsItIsEndedIsEndedByTheNext(t *testing.T) {
	e, f := fakeEngine(t, 0)
	k := e.keepers.current
	var tries atomic.Int64
	f.on(keeperapi.MethodKill, func(context.Context, *fdrpc.Request) error {
		if tries.Add(1) == 1 {
			return k.rpc.Close() // as when the keeper dies
		}
		return nil
	})
	if err := e.endLife(life{lifeA, k}, cube.DeathKilled); err != nil || tries.Load() != 2 {
		t.Errorf("after %d tries: %v; want it ended by the second", tries.Load(), err)
	}
	tries.Store(0)
	f.on(keeperapi.MethodKill, func(context.Context, *fdrpc.Request) error { tries.Add(1); return errors.New("it does not end") })
	if err := e.endLife(life{lifeA, k}, cube.DeathKilled); err == nil || tries.Load() != 1 {
		t.Errorf("after %d tries: %v; want the error of the only one", tries.Load(), err)
	}
}

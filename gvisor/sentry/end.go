package sentry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// errLeaving is what requests get from a keeper that is about to end.
var errLeaving = fdrpc.Errorf(keeperapi.CodeLeaving, "this keeper is ending; connect again")

// leaveTime bounds how long a keeper that leaves waits for what it is doing.
const leaveTime = 90 * time.Second

// died runs once for each life, when its process has ended. Clients hear of it
// first: to take away what is left can take seconds.
func (k *Keeper) died(l *life) {
	v := l.view()
	k.log.Info("life ended", "life", v.Life, "sandbox", v.Labels.Sandbox, "reason", v.Death.Reason, "detail", v.Death.Detail)
	v.Labels.Identity = cube.Identity{} // large, and secret
	k.server.Notify(keeperapi.NoteDied, v)
	<-k.ready
	k.network.unplug(v.Life)
	k.release(l)
	k.litterLeft()
}

// litterLeft asks for a collection.
func (k *Keeper) litterLeft() {
	select {
	case k.litter <- struct{}{}:
	default: // one is due already
	}
}

func (k *Keeper) release(l *life) {
	defer close(l.released)
	if err := l.release(); err != nil {
		k.log.Error("a dead life left something behind", "life", l.id, "error", err)
	}
}

// tidy calls f until it succeeds, for a few minutes at most; after that it is the
// next keeper's.
func (k *Keeper) tidy(life string, f func() error) {
	for wait := time.Second; ; wait *= 2 {
		err := f()
		if err == nil {
			return
		}
		k.log.Error("what is left of a life cannot be removed", "life", life, "error", err)
		if wait > 2*time.Minute {
			return
		}
		select {
		case <-time.After(wait): // nothing tells when it can be
		case <-k.stop:
			return
		}
	}
}

// collect runs the garbage collector when lives were booted or have ended. gVisor
// drops the os.Process of a sentry without waiting for it, and its descriptor is
// closed by the collector only, which in a keeper with nothing to do never runs.
func (k *Keeper) collect() {
	for {
		select {
		case <-k.litter:
			runtime.GC()
		case <-k.stop:
			return
		}
	}
}

// leave ends this process; what it keeps is written down for the next.
func (k *Keeper) leave(context.Context, *fdrpc.Request) (any, []*os.File, error) {
	k.server.Refuse(errLeaving)
	k.quit()
	return nil, nil, nil
}

func (k *Keeper) quit() { k.stopOnce.Do(func() { close(k.stop) }) }

// shutdown ends everything. What cannot be ended stays on record for the next keeper.
func (k *Keeper) shutdown(context.Context, *fdrpc.Request) (any, []*os.File, error) {
	k.mu.Lock()
	k.ending = true // no boot slips in behind the list
	k.mu.Unlock()
	ls := k.all()
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() {
			if err := k.end(l, cube.DeathKilled, true); err != nil {
				errs[i] = fmt.Errorf("end life %s: %w", l.id, err)
			}
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		k.wg.Wait()
	}
	err = errors.Join(err, k.network.end())
	k.cgroups.removeNode()
	for _, name := range []string{SocketName, networkSocket, "null"} {
		os.Remove(filepath.Join(k.conf.RunDir, name))
	}
	os.Remove(filepath.Join(k.sentryDir(), gateName))
	os.Remove(k.sentryDir())
	os.Remove(k.livesDir())
	k.quit()
	return nil, nil, err
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
)

// keepers are those of a run directory: one for each version of the sentry that is
// in use. That of the installed version is in the run directory itself, or beside
// one of another version that still has lives there.
type keepers struct {
	runDir  string
	engines engines
	died    func(keeperapi.Life)
	current *keeper  // of the installed version: what is new is its
	inUse   *os.File // says that the installed version is

	mu      sync.Mutex // guards the following, and users of each
	all     []*keeper
	opening map[string]chan struct{} // versions of which one is being started or sent off, closed then
}

func (ks *keepers) add(k *keeper) {
	if k == nil {
		return
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.all = append(ks.all, k)
}

// list returns all of them at this moment.
func (ks *keepers) list() []*keeper {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return slices.Clone(ks.all)
}

// find returns the keeper of a version that is there, ours first.
func (ks *keepers) find(version string) *keeper {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.current != nil && ks.current.version() == version {
		return ks.current
	}
	for _, k := range ks.all {
		if k.version() == version {
			return k
		}
	}
	return nil
}

// hold returns the keeper that restores the images of a version, starting it if
// need be: added tells whether that was so. It is not sent off before release.
func (ks *keepers) hold(ctx context.Context, version string) (_ *keeper, added bool, err error) {
	if k := ks.tryHold(version); k != nil {
		return k, false, nil
	}
	done, err := ks.open(ctx, version)
	if err != nil {
		return nil, false, err
	}
	defer done()
	if k := ks.tryHold(version); k != nil {
		return k, false, nil
	}
	if !ks.engines.has(version) {
		return nil, false, fmt.Errorf("it was made by engine %s, which is not installed (installed are %s); start a server of that version once with this state directory, or use an image of these: %w",
			version, strings.Join(ks.engines.installed(), ", "), cube.ErrIncompatible)
	}
	// Who asks may go away. A keeper that has been started is ours all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
	defer cancel()
	k, err := connect(ctx, otherPlace(ks.runDir, ks.engines, version), ks.died)
	if err != nil {
		return nil, false, err
	}
	if k.version() != version {
		err := fmt.Errorf("the program of engine %s says that it is %s: %w", version, k.version(), cube.ErrIncompatible)
		return nil, false, errors.Join(err, ks.turnAway(ctx, k))
	}
	k.users = 1
	ks.add(k)
	return k, true, nil
}

// openTime bounds how long a keeper may take to start and say who it is.
const openTime = time.Minute

// open waits until no other keeper of a version is being started or sent off, and says
// that one is, until done is called.
func (ks *keepers) open(ctx context.Context, version string) (done func(), err error) {
	for {
		ks.mu.Lock()
		other := ks.opening[version]
		if other == nil {
			mine := make(chan struct{})
			if ks.opening == nil {
				ks.opening = map[string]chan struct{}{}
			}
			ks.opening[version] = mine
			ks.mu.Unlock()
			return func() {
				ks.mu.Lock()
				delete(ks.opening, version)
				ks.mu.Unlock()
				close(mine)
			}, nil
		}
		ks.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("a keeper of engine %s is being started or ended: %w", version, ctx.Err())
		}
	}
}

// turnAway ends a keeper that is not what it was taken for, unless somebody has it.
func (ks *keepers) turnAway(ctx context.Context, k *keeper) error {
	lives, err := k.lives(ctx)
	known := slices.ContainsFunc(ks.list(), func(o *keeper) bool { return o.place.dir == k.place.dir })
	if err != nil || len(lives) > 0 || known {
		return errors.Join(err, k.close())
	}
	return errors.Join(k.shutdown(ctx), k.close())
}

func (ks *keepers) tryHold(version string) *keeper {
	k := ks.find(version)
	if k == nil {
		return nil
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if !slices.Contains(ks.all, k) {
		return nil // sent off meanwhile
	}
	k.users++
	return k
}

func (ks *keepers) release(k *keeper) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k.users--
}

// sendOff ends a keeper that has no lives and that nobody uses, and reports whether
// it is gone.
func (ks *keepers) sendOff(ctx context.Context, k *keeper) (bool, error) {
	done, err := ks.open(ctx, k.version()) // nobody starts another in its place meanwhile
	if err != nil {
		return false, err
	}
	defer done()
	if !ks.take(k) {
		return false, nil
	}
	lives, err := k.lives(ctx)
	if err == nil && len(lives) == 0 {
		err = k.shutdown(ctx)
	}
	if err != nil || len(lives) > 0 {
		ks.add(k)
		return false, err
	}
	return true, nil
}

// take removes a keeper from the list, unless it is in use or ours.
func (ks *keepers) take(k *keeper) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	i := slices.Index(ks.all, k)
	if k == ks.current || k.users > 0 || i < 0 {
		return false
	}
	ks.all = slices.Delete(ks.all, i, i+1)
	return true
}

// idle returns when a keeper has had no lives and no users for as long as linger;
// false when ctx ends first.
func (ks *keepers) idle(ctx context.Context, k *keeper, linger time.Duration) bool {
	tick := time.NewTicker(max(linger/6, 10*time.Millisecond))
	defer tick.Stop()
	since := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		lives, err := k.lives(ctx)
		ks.mu.Lock()
		used := k.users > 0
		ks.mu.Unlock()
		if err != nil || len(lives) > 0 || used {
			since = time.Now()
		}
		if time.Since(since) >= linger {
			return true
		}
	}
}

// shutdown ends all of them with everything that they have.
func (ks *keepers) shutdown(ctx context.Context) error {
	var errs []error
	for _, k := range ks.list() {
		if err := k.shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("keeper at %s: %w", k.place.dir, err))
		}
	}
	return errors.Join(errs...)
}

// close lets go of all of them.
func (ks *keepers) close() error {
	var errs []error
	for _, k := range ks.list() {
		errs = append(errs, k.close())
	}
	if ks.inUse != nil {
		errs = append(errs, ks.inUse.Close())
	}
	return errors.Join(errs...)
}

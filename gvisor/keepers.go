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

	opening sync.Mutex // held while one is started or sent off

	mu  sync.Mutex // guards the following, and users of each
	all []*keeper
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
	ks.opening.Lock()
	defer ks.opening.Unlock()
	if k := ks.tryHold(version); k != nil {
		return k, false, nil
	}
	if !ks.engines.has(version) {
		return nil, false, fmt.Errorf("it was made by engine %s, which is not installed (installed are %s); start a server of that version once with this state directory, or use an image of these: %w",
			version, strings.Join(ks.engines.installed(), ", "), cube.ErrIncompatible)
	}
	k, err := connect(ctx, otherPlace(ks.runDir, ks.engines, version), ks.died)
	if err != nil {
		return nil, false, err
	}
	if k.version() != version {
		return nil, false, errors.Join(fmt.Errorf("the program of engine %s says that it is %s: %w", version, k.version(), cube.ErrIncompatible), k.close())
	}
	k.users = 1
	ks.add(k)
	return k, true, nil
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
	ks.opening.Lock() // nobody starts another in its place meanwhile
	defer ks.opening.Unlock()
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

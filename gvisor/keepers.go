package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// openKeepers connects to those that are there, starting those again whose lives
// are left without one, and to that of the installed version. One that executes an
// older build than the one that is installed now is replaced; its lives run on.
func openKeepers(ctx context.Context, conf Config, died func(keeperapi.Life)) (_ *keepers, err error) {
	ks := &keepers{runDir: conf.RunDir, engines: engines{filepath.Join(conf.StateDir, "engines")}, died: died}
	defer func() {
		if err != nil {
			err = errors.Join(err, ks.close())
		}
	}()
	if os.Geteuid() != 0 {
		ks.current, err = connect(ctx, mainPlace(conf.RunDir, ks.engines, ""), died)
		ks.add(ks.current)
		return ks, err
	}
	var version string
	if version, ks.inUse, err = ks.engines.install(ctx, conf.BinDir); err != nil {
		return nil, err
	}
	places, err := ks.places(version)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		k, err := connect(ctx, p, died)
		if err != nil {
			return nil, err
		}
		ks.add(k)
	}
	if ks.current, err = ks.choose(ctx, version); err != nil {
		return nil, err
	}
	return ks, nil
}

// places are those where a keeper runs or has left something: the run directory
// first.
func (ks *keepers) places(version string) ([]place, error) {
	found := []place{mainPlace(ks.runDir, ks.engines, version)}
	entries, err := os.ReadDir(filepath.Join(ks.runDir, keepersDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if len(e.Name()) != len(shortHash("")) {
			continue // not ours
		}
		found = append(found, placeNamed(ks.runDir, ks.engines, e.Name(), version))
	}
	var out []place
	for _, p := range found {
		used, err := p.inUse()
		if err != nil {
			return nil, err
		}
		if !used {
			if p.dir != ks.runDir { // what is left of one that was sent off
				err = os.RemoveAll(p.dir)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		// A version that is installed no more leaves its lives to ours.
		if v := p.started(); ks.engines.has(v) {
			p.version = v
		}
		out = append(out, p)
	}
	return out, nil
}

// choose finds the keeper of a version or starts one. In the run directory it takes
// the place of one that has no lives.
func (ks *keepers) choose(ctx context.Context, version string) (*keeper, error) {
	home := mainPlace(ks.runDir, ks.engines, version)
	at := func(dir string) *keeper {
		for _, k := range ks.all {
			if k.place.dir == dir {
				return k
			}
		}
		return nil
	}
	first := at(home.dir)
	if first == nil || first.version() != version {
		if k := ks.find(version); k != nil {
			return ks.renew(ctx, k, version)
		}
	}
	if first == nil {
		return ks.start(ctx, home)
	}
	if first.version() == version {
		return ks.renew(ctx, first, version)
	}
	lives, err := first.lives(ctx)
	if err != nil {
		return nil, err
	}
	if len(lives) > 0 {
		return ks.start(ctx, otherPlace(ks.runDir, ks.engines, version))
	}
	if err := ks.replace(ctx, first, home); err != nil {
		return nil, err
	}
	return first, nil
}

// renew replaces a keeper that, or whose network process, executes another build than
// the installed one.
func (ks *keepers) renew(ctx context.Context, k *keeper, version string) (*keeper, error) {
	now, err := inode(ks.engines.sentry(version))
	if err != nil {
		return k, err
	}
	network, err := inode(ks.engines.network(version))
	if err != nil || k.info.Inode == now && (k.info.NetworkInode == network || k.info.NetworkInode == 0) {
		return k, err
	}
	return k, ks.replace(ctx, k, k.place)
}

// replace has another keeper take the place of one, which p says how to start.
func (ks *keepers) replace(ctx context.Context, k *keeper, p place) error {
	if err := k.leave(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	k.place = p
	k.mu.Unlock()
	return k.hello(ctx)
}

func (ks *keepers) start(ctx context.Context, p place) (*keeper, error) {
	k, err := connect(ctx, p, ks.died)
	if err != nil {
		return nil, err
	}
	ks.add(k)
	return k, nil
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

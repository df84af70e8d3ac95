package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"cubesandbox/gvisor/keeperapi"
)

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

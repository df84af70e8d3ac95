package sentry

import (
	"context"
	"errors"
	"fmt"
	"os"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// noteBases writes down in which images the memory of a life will lie.
func (l *life) noteBases(q keeperapi.Restore) error {
	if q.Base == "" {
		return nil
	}
	return l.note(func(r *record) { r.Bases = append([]cube.BaseID{q.Base}, q.Bases...) })
}

// adoptSaved has a life use the pages that it has saved last where they lie now.
func (k *Keeper) adoptSaved(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.Adopt
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	l, err := k.ref(r, 1)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	// Written down first, for nobody could find out later; afterwards that there are no
	// others any more.
	others := l.record().Bases
	if err := l.note(func(r *record) { r.Bases = append([]cube.BaseID{q.Base}, others...) }); err != nil {
		return nil, nil, err
	}
	if err := adoptPages(l, q, r.Files[0]); err != nil {
		err = errors.Join(err, l.note(func(r *record) { r.Bases = others }))
		return nil, nil, fmt.Errorf("adopt %s: %w", q.Base, err)
	}
	return nil, nil, l.note(func(r *record) { r.Bases = append([]cube.BaseID{q.Base}, q.Bases...) })
}

// earlyWrites says where a life has written first to memory that it shares.
func (k *Keeper) earlyWrites(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := k.ref(r, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := l.need(keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	out, err := firstWrites(l)
	return out, nil, err
}

package sentry

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// reserve enters a life that is being made.
func (k *Keeper) reserve(l *life) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ending {
		return errLeaving
	}
	if _, ok := k.lives[l.id]; ok {
		return fdrpc.Errorf(keeperapi.CodeExists, "life %s exists", l.id)
	}
	k.lives[l.id] = l
	return nil
}

func (k *Keeper) forget(l *life) {
	k.mu.Lock()
	delete(k.lives, l.id)
	k.mu.Unlock()
}

// find returns a life by the reference in a request.
func (k *Keeper) find(id string) (*life, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.lives[id]
	if !ok {
		return nil, fdrpc.Errorf(keeperapi.CodeNoLife, "there is no life %s", id)
	}
	return l, nil
}

// all returns every life, in order of id.
func (k *Keeper) all() []*life {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ls []*life
	for _, id := range slices.Sorted(maps.Keys(k.lives)) {
		ls = append(ls, k.lives[id])
	}
	return ls
}

const (
	// pageBytes ends a page of list: an answer has to stay below the largest message,
	// with the life that crosses the line.
	pageBytes = 64 << 10
	// maxIdentity bounds an identity, as JSON.
	maxIdentity = 32 << 10
)

func checkIdentity(id string, who cube.Identity) error {
	b, err := json.Marshal(who)
	if err != nil {
		return fdrpc.Errorf(keeperapi.CodeInvalid, "life %s: identity: %v", id, err)
	}
	if len(b) > maxIdentity {
		return fdrpc.Errorf(keeperapi.CodeInvalid, "life %s: host name, environment and token take %d bytes; the limit is %d", id, len(b), maxIdentity)
	}
	return nil
}

func (k *Keeper) list(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.List
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	page, err := pageOf(k.all(), q.After)
	return page, nil, err
}

// pageOf has the lives above after, at least one of them, up to pageBytes.
func pageOf(ls []*life, after string) (keeperapi.Lives, error) {
	var out keeperapi.Lives
	size := 0
	for _, l := range ls {
		if l.id <= after {
			continue
		}
		v := l.view()
		b, err := json.Marshal(v)
		if err != nil {
			return out, err
		}
		if size += len(b) + 1; size > pageBytes && len(out.Lives) > 0 {
			out.More = true
			break
		}
		out.Lives = append(out.Lives, v)
	}
	return out, nil
}

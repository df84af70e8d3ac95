package fake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	cube "cubesandbox"
)

// Records is a cube.Store in memory that can fail. It outlives whoever uses it: to
// close it does nothing.
type Records struct {
	mu        sync.Mutex // guards the following
	sandboxes map[cube.SandboxID]cube.Record
	snapshots map[cube.ImageID]cube.Snapshot
	plans     map[string]cube.Plan
	answers   map[string]cube.Answer
	fail      func(cube.Batch) error
	history   map[cube.SandboxID][]cube.Phase
	syncs     int
}

var _ cube.Store = (*Records)(nil)

// NewRecords returns a store without records.
func NewRecords() *Records {
	return &Records{
		sandboxes: map[cube.SandboxID]cube.Record{}, snapshots: map[cube.ImageID]cube.Snapshot{},
		plans: map[string]cube.Plan{}, answers: map[string]cube.Answer{}, history: map[cube.SandboxID][]cube.Phase{},
	}
}

// Fail has f decide about each batch; nil lets all through.
func (s *Records) Fail(f func(cube.Batch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// History is every phase that was written of a sandbox.
func (s *Records) History(id cube.SandboxID) []cube.Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history[id])
}

// Syncs counts the calls of Sync.
func (s *Records) Syncs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.syncs
}

// Apply implements cube.Store.
func (s *Records) Apply(ctx context.Context, b cube.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := storable(b); err != nil {
		return err
	}
	if s.fail != nil {
		if err := s.fail(b); err != nil {
			return err
		}
	}
	for _, r := range b.Sandboxes {
		s.sandboxes[r.ID] = storedRecord(r)
		s.history[r.ID] = append(s.history[r.ID], r.Phase)
	}
	for _, x := range b.Snapshots {
		s.snapshots[x.ID] = storedSnapshot(x)
	}
	for _, x := range b.Plans {
		s.plans[x.ID] = storedPlan(x)
	}
	for _, x := range b.Answers {
		s.answers[x.Key] = storedAnswer(x)
	}
	drop(s.sandboxes, b.DropSandboxes)
	drop(s.snapshots, b.DropSnapshots)
	drop(s.plans, b.DropPlans)
	drop(s.answers, b.DropAnswers)
	return ctx.Err()
}

func drop[K comparable, V any](m map[K]V, keys []K) {
	for _, k := range keys {
		delete(m, k)
	}
}

// Sandbox implements cube.Store.
func (s *Records) Sandbox(ctx context.Context, id cube.SandboxID) (cube.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return cube.Record{}, err
	}
	if r, ok := s.sandboxes[id]; ok {
		return storedRecord(r), nil
	}
	return cube.Record{}, fmt.Errorf("record of %s: %w", id, cube.ErrNotFound)
}

// Sandboxes implements cube.Store.
func (s *Records) Sandboxes(ctx context.Context) ([]cube.Record, error) {
	return values(ctx, s, s.sandboxes, storedRecord, func(a, b cube.Record) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
}

// Snapshots implements cube.Store.
func (s *Records) Snapshots(ctx context.Context) ([]cube.Snapshot, error) {
	return values(ctx, s, s.snapshots, storedSnapshot, func(a, b cube.Snapshot) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// Plans implements cube.Store.
func (s *Records) Plans(ctx context.Context) ([]cube.Plan, error) {
	return values(ctx, s, s.plans, storedPlan, func(a, b cube.Plan) int {
		return cmp.Or(a.BeganAt.Compare(b.BeganAt), cmp.Compare(a.ID, b.ID))
	})
}

// Answers implements cube.Store.
func (s *Records) Answers(ctx context.Context) ([]cube.Answer, error) {
	return values(ctx, s, s.answers, storedAnswer, func(a, b cube.Answer) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
	})
}

// values are copies, in order.
func values[K comparable, V any](ctx context.Context, s *Records, m map[K]V, stored func(V) V, order func(a, b V) int) ([]V, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := slices.SortedFunc(maps.Values(m), order)
	for i, v := range out {
		out[i] = stored(v)
	}
	return out, nil
}

// Sync implements cube.Store.
func (s *Records) Sync(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	s.syncs++
	return nil
}

// Close implements cube.Store.
func (s *Records) Close() error { return nil }

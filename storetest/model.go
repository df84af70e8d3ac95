package storetest

import (
	"cmp"
	"context"
	"maps"
	"slices"

	cube "cubesandbox"
)

// model is what a store must hold: the contract, in maps.
type model struct {
	sandboxes map[cube.SandboxID]cube.Record
	snapshots map[cube.ImageID]cube.Snapshot
	plans     map[string]cube.Plan
	answers   map[string]cube.Answer
}

func newModel() *model {
	return &model{map[cube.SandboxID]cube.Record{}, map[cube.ImageID]cube.Snapshot{}, map[string]cube.Plan{}, map[string]cube.Answer{}}
}

// apply does what Store.Apply is to do.
func (m *model) apply(b cube.Batch) {
	change(m.sandboxes, b.Sandboxes, b.DropSandboxes, recordID)
	change(m.snapshots, b.Snapshots, b.DropSnapshots, snapshotID)
	change(m.plans, b.Plans, b.DropPlans, planID)
	change(m.answers, b.Answers, b.DropAnswers, answerKey)
}

func change[K comparable, V any](m map[K]V, put []V, drop []K, key func(V) K) {
	for _, v := range put {
		m[key(v)] = v
	}
	for _, k := range drop {
		delete(m, k)
	}
}

func recordID(r cube.Record) cube.SandboxID   { return r.ID }
func snapshotID(s cube.Snapshot) cube.ImageID { return s.ID }
func planID(p cube.Plan) string               { return p.ID }
func answerKey(a cube.Answer) string          { return a.Key }

func recordOrder(a, b cube.Record) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

func snapshotOrder(a, b cube.Snapshot) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

func planOrder(a, b cube.Plan) int {
	return cmp.Or(a.BeganAt.Compare(b.BeganAt), cmp.Compare(a.ID, b.ID))
}

func answerOrder(a, b cube.Answer) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
}

// is checks that the store holds what the model does, in its order, and nothing else.
func (x *X) is(m *model) {
	x.Helper()
	listed(x, "sandboxes", x.s.Sandboxes, m.sandboxes, recordOrder)
	listed(x, "snapshots", x.s.Snapshots, m.snapshots, snapshotOrder)
	listed(x, "plans", x.s.Plans, m.plans, planOrder)
	listed(x, "answers", x.s.Answers, m.answers, answerOrder)
	for _, r := range m.sandboxes {
		x.holds(r)
	}
}

func listed[K comparable, V any](x *X, what string, list func(context.Context) ([]V, error), want map[K]V, order func(a, b V) int) {
	x.Helper()
	got, err := list(x.ctx)
	x.noError(err, "list "+what)
	if len(got) != len(want) {
		x.Fatalf("got %d %s, want %d", len(got), what, len(want))
	}
	for i, w := range slices.SortedFunc(maps.Values(want), order) {
		x.same(got[i], w)
	}
}

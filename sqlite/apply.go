package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

// An error at the second place is one of those that a caller cannot tell from the
// first: all of the batch is there.
var (
	fpBeforeCommit = failpoint.New("sqlite/apply/before-commit")
	fpCommitted    = failpoint.New("sqlite/apply/committed")
)

// change is one row's.
type change struct {
	stmt *sql.Stmt
	args []any
	what string // for errors, before the key
}

func (c change) do(ctx context.Context) error {
	if _, err := c.stmt.ExecContext(ctx, c.args...); err != nil {
		return fmt.Errorf("%s %v: %w", c.what, c.args[0], err)
	}
	return nil
}

// Apply implements cube.Store.
func (s *Store) Apply(ctx context.Context, b cube.Batch) error {
	begun, leave, err := s.enter(ctx)
	if err != nil {
		return fmt.Errorf("write the records: %w", err)
	}
	defer leave()
	if err := s.apply(begun, s.changes(b)); err != nil {
		return fmt.Errorf("write the records: %w", cause(err))
	}
	return fpCommitted.Hit()
}

func (s *Store) apply(ctx context.Context, cs []change) error {
	all := func() error {
		for _, c := range cs {
			if err := c.do(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if len(cs) == 1 { // a statement alone is a transaction
		if err := fpBeforeCommit.Hit(); err != nil {
			return err
		}
		return all()
	}
	return s.exclusively(ctx, func() error {
		if err := all(); err != nil {
			return err
		}
		return fpBeforeCommit.Hit()
	})
}

// changes are those of a batch, in no order that matters: no two are of one row.
func (s *Store) changes(b cube.Batch) []change {
	var cs []change
	cs = put(cs, s.sandboxes, "sandbox", b.Sandboxes, sandboxValues)
	cs = drop(cs, s.sandboxes, "drop sandbox", b.DropSandboxes)
	cs = put(cs, s.snapshots, "snapshot", b.Snapshots, snapshotValues)
	cs = drop(cs, s.snapshots, "drop snapshot", b.DropSnapshots)
	cs = put(cs, s.plans, "plan", b.Plans, planValues)
	cs = drop(cs, s.plans, "drop plan", b.DropPlans)
	cs = put(cs, s.answers, "answer to", b.Answers, answerValues)
	return drop(cs, s.answers, "drop answer to", b.DropAnswers)
}

func put[T any](cs []change, s statements, what string, rows []T, values func(T) []any) []change {
	for _, r := range rows {
		cs = append(cs, change{s.put, values(r), what})
	}
	return cs
}

func drop[K ~string](cs []change, s statements, what string, keys []K) []change {
	for _, k := range keys {
		cs = append(cs, change{s.drop, []any{string(k)}, what})
	}
	return cs
}

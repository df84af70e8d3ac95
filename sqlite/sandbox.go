package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	cube "cubesandbox"
)

// PutSandboxes implements cube.Store.
func (s *Store) PutSandboxes(ctx context.Context, rs ...cube.Record) error {
	if len(rs) == 1 { // a statement alone is a transaction
		return putSandbox(ctx, s.putSandbox, rs[0])
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return full(err)
	}
	defer tx.Rollback() // nothing after a commit
	stmt := tx.StmtContext(ctx, s.putSandbox)
	for _, r := range rs {
		if err := putSandbox(ctx, stmt, r); err != nil {
			return err
		}
	}
	return full(tx.Commit())
}

func putSandbox(ctx context.Context, stmt *sql.Stmt, r cube.Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	_, err = stmt.ExecContext(ctx, r.ID, r.Phase, int64(r.Generation), r.Template, r.Parent, r.Image,
		nanos(r.StartedAt), nanos(r.ChangedAt), nanos(r.EndAt), string(b))
	return full(err)
}

// nanos are those since 1970; 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Sandbox implements cube.Store.
func (s *Store) Sandbox(ctx context.Context, id cube.SandboxID) (cube.Record, error) {
	var b string
	err := s.db.QueryRowContext(ctx, `SELECT record FROM sandboxes WHERE id = ?`, id).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return cube.Record{}, fmt.Errorf("record of %s: %w", id, cube.ErrNotFound)
	}
	if err != nil {
		return cube.Record{}, err
	}
	return decode[cube.Record](b)
}

// Sandboxes implements cube.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]cube.Record, error) {
	return list[cube.Record](ctx, s.db, `SELECT record FROM sandboxes ORDER BY started_at, id`)
}

// DeleteSandbox implements cube.Store.
func (s *Store) DeleteSandbox(ctx context.Context, id cube.SandboxID) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM sandboxes WHERE id = ?`, id)
	return full(err)
}

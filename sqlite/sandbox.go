package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	cube "cubesandbox"
)

// storedRecord is a record in its column.
type storedRecord struct {
	cube.Record
	// EmptyEnv: the environment is there, with nothing in it. The form in which an
	// identity is told to agents does not tell that from none.
	EmptyEnv bool `json:",omitempty"`
}

// encode is the record's column. Its times are in UTC.
func encode(r cube.Record) ([]byte, error) {
	r.StartedAt, r.ChangedAt, r.EndAt = r.StartedAt.UTC(), r.ChangedAt.UTC(), r.EndAt.UTC()
	if r.End != nil {
		end := *r.End
		end.At = end.At.UTC()
		r.End = &end
	}
	return json.Marshal(storedRecord{Record: r, EmptyEnv: r.Identity.Env != nil && len(r.Identity.Env) == 0})
}

func (s storedRecord) value() cube.Record {
	if s.EmptyEnv {
		s.Identity.Env = map[string]string{}
	}
	return s.Record
}

// PutSandboxes implements cube.Store.
func (s *Store) PutSandboxes(ctx context.Context, rs ...cube.Record) error {
	if len(rs) == 1 { // a statement alone is a transaction
		return cause(ctx, putSandbox(ctx, s.putSandbox, rs[0]))
	}
	return cause(ctx, s.putTogether(ctx, rs))
}

func (s *Store) putTogether(ctx context.Context, rs []cube.Record) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing after a commit
	stmt := tx.StmtContext(ctx, s.putSandbox)
	for _, r := range rs {
		if err := putSandbox(ctx, stmt, r); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func putSandbox(ctx context.Context, stmt *sql.Stmt, r cube.Record) error {
	b, err := encode(r)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", r.ID, err)
	}
	_, err = stmt.ExecContext(ctx, r.ID, r.Phase, int64(r.Generation), r.Template, r.Parent, r.Image,
		nanos(r.StartedAt), nanos(r.ChangedAt), nanos(r.EndAt), string(b))
	return err
}

// farthest is the last moment that has a number of nanoseconds since 1970, in 2262.
var farthest = time.Unix(0, math.MaxInt64)

// nanos are those since 1970, for what is asked for by time; 0 for the zero time.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.After(farthest):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Sandbox implements cube.Store.
func (s *Store) Sandbox(ctx context.Context, id cube.SandboxID) (cube.Record, error) {
	var b []byte
	err := s.getSandbox.QueryRowContext(ctx, id).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return cube.Record{}, fmt.Errorf("record of %s: %w", id, cube.ErrNotFound)
	}
	if err != nil {
		return cube.Record{}, cause(ctx, err)
	}
	r, err := decode[storedRecord](b)
	return r.value(), err
}

// Sandboxes implements cube.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]cube.Record, error) {
	return list(ctx, s.db, `SELECT record FROM sandboxes ORDER BY started_at, id`, storedRecord.value)
}

// DeleteSandbox implements cube.Store.
func (s *Store) DeleteSandbox(ctx context.Context, id cube.SandboxID) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM sandboxes WHERE id = ?`, id)
	return cause(ctx, err)
}

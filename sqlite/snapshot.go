package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	cube "cubesandbox"
)

// PutSnapshot implements cube.Store.
func (s *Store) PutSnapshot(ctx context.Context, snap cube.Snapshot) error {
	b, err := json.Marshal(snap)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", snap.ID, err)
	}
	_, err = s.putSnapshot.ExecContext(ctx, snap.ID, snap.Name, snap.Source, snap.State, nanos(snap.CreatedAt), string(b))
	return full(err)
}

// Snapshots implements cube.Store.
func (s *Store) Snapshots(ctx context.Context) ([]cube.Snapshot, error) {
	return list[cube.Snapshot](ctx, s.db, `SELECT record FROM snapshots ORDER BY created_at, id`)
}

// DeleteSnapshot implements cube.Store.
func (s *Store) DeleteSnapshot(ctx context.Context, id cube.ImageID) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM snapshots WHERE id = ?`, id)
	return full(err)
}

func list[T any](ctx context.Context, db *sql.DB, query string) ([]T, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var b string
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		v, err := decode[T](b)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

func decode[T any](b string) (v T, err error) {
	if err := json.Unmarshal([]byte(b), &v); err != nil {
		return v, fmt.Errorf("a record cannot be read: %w: %w", cube.ErrCorrupt, err)
	}
	return v, nil
}

// full gives a full disk its name.
func full(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL {
		return fmt.Errorf("%w: %w", cube.ErrNoSpace, err)
	}
	return err
}

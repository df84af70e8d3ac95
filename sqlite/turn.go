package sqlite

import (
	"context"
	"database/sql"
)

// enter waits until the connection is free. Contexts end the wait, and nothing that
// has begun: SQLite would be interrupted, the driver would close the connection,
// and closing removes the log, on which Sync relies. What has begun takes a
// moment. The context to go on with is returned; leave must be called.
func (s *Store) enter(ctx context.Context) (begun context.Context, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	select {
	case s.turn <- struct{}{}:
		return context.WithoutCancel(ctx), func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// list returns what a query finds, until the context ends.
func list[T any](ctx context.Context, s *Store, stmt *sql.Stmt, scan func(func(...any) error) (T, error), args ...any) ([]T, error) {
	begun, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	rows, err := stmt.QueryContext(begun, args...)
	if err != nil {
		return nil, cause(err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, err := scan(rows.Scan)
		if err != nil {
			return nil, cause(err)
		}
		out = append(out, v)
	}
	return out, cause(rows.Err())
}

// exclusively runs what is to become true at once; of what fails nothing is left.
func (s *Store) exclusively(ctx context.Context, do func() error) error {
	if _, err := s.begin.ExecContext(ctx); err != nil {
		return err
	}
	err := do()
	if err == nil {
		_, err = s.commit.ExecContext(ctx)
	}
	if err != nil {
		// Where SQLite has done it by itself, there is none: that is fine.
		s.rollback.ExecContext(ctx)
	}
	return err
}

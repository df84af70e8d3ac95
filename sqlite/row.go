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

// list returns the values of a query's only column, whose stored form is S.
func list[S, T any](ctx context.Context, db *sql.DB, query string, value func(S) T) ([]T, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var b sql.RawBytes
		if err := rows.Scan(&b); err != nil {
			return nil, cause(ctx, err)
		}
		stored, err := decode[S](b)
		if err != nil {
			return nil, err
		}
		out = append(out, value(stored))
	}
	if err := rows.Err(); err != nil {
		return nil, cause(ctx, err)
	}
	return out, nil
}

func decode[S any](b []byte) (v S, err error) {
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("a record cannot be read: %w: %w", cube.ErrCorrupt, err)
	}
	return v, nil
}

// cause gives an error the name that callers know. What breaks off because a context
// has ended has many faces: a rolled back transaction, a closed statement, a lost
// connection.
func cause(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %v", ctx.Err(), err)
	case code(err) == sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", cube.ErrNoSpace, err)
	case broken(err):
		return fmt.Errorf("%w: %w", cube.ErrCorrupt, err)
	}
	return err
}

// broken reports whether the file is no database, or is one no more.
func broken(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB
}

// code is SQLite's primary result code; 0 for errors of others.
func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

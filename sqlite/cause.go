package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	cube "cubesandbox"
)

// cause gives an error of SQLite's the name that callers know.
func cause(err error) error {
	switch {
	// The second: there is no room for the index of the log.
	case code(err) == sqlite3.SQLITE_FULL, extended(err) == sqlite3.SQLITE_IOERR_SHMSIZE:
		return fmt.Errorf("%w: %w", cube.ErrNoSpace, err)
	case code(err) == sqlite3.SQLITE_CONSTRAINT:
		return fmt.Errorf("%w: %w", cube.ErrInvalid, err)
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
func code(err error) int { return extended(err) & 0xff }

// extended is SQLite's extended result code; 0 for errors of others.
func extended(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code()
}

package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver

	cube "cubesandbox"
)

//go:embed migrations/*.sql
var migrations embed.FS

// pragmas are those of every connection.
const pragmas = "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_txlock=immediate"

// Store is a cube.Store in one file.
type Store struct {
	db   *sql.DB
	lock *os.File

	putSandbox, putSnapshot *sql.Stmt
}

var _ cube.Store = (*Store)(nil)

// Open opens the database at path, making or migrating it where need be. One
// process can have it open: another gets ErrConflict.
func Open(path string) (_ *Store, err error) {
	s := &Store{}
	if s.lock, err = lock(path + ".lock"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	if err := touch(path); err != nil {
		return nil, err
	}
	if s.db, err = sql.Open("sqlite", "file:"+escape(path)+pragmas); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			s.db.Close()
		}
	}()
	// One connection: there is one writer, and readers come at start only.
	s.db.SetMaxOpenConns(1)
	if err := s.migrate(context.Background(), path); err != nil {
		return nil, err
	}
	return s, s.prepare()
}

// lock makes sure that nobody else has the database open.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("another server has the records open (%s); stop it, or use another --state-dir: %w", path, cube.ErrConflict)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// touch makes the file with its mode, before SQLite makes it with another.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the records: %w", err)
	}
	return f.Close()
}

// escape makes a path safe in a SQLite URI.
func escape(path string) string {
	var b []byte
	for i := range len(path) {
		switch c := path[i]; c {
		case '?', '#', '%':
			b = fmt.Appendf(b, "%%%02x", c)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func (s *Store) migrate(ctx context.Context, path string) error {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.db, sub)
	if err != nil {
		return fmt.Errorf("records in %s: %w", path, err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("records in %s cannot be read; restore the file from a copy, or move it away and lose the records of what runs: %w: %w", path, cube.ErrCorrupt, err)
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; have > newest {
		return fmt.Errorf("records in %s are of version %d, this program knows %d; run the newer program again: %w", path, have, newest, cube.ErrIncompatible)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the records in %s: %w", path, err)
	}
	return nil
}

func (s *Store) prepare() (err error) {
	s.putSandbox, err = s.db.Prepare(`INSERT OR REPLACE INTO sandboxes
		(id, phase, generation, template, parent, image, started_at, changed_at, end_at, record) VALUES (?,?,?,?,?,?,?,?,?,?)`)
	if err != nil {
		return err
	}
	s.putSnapshot, err = s.db.Prepare(`INSERT OR REPLACE INTO snapshots (id, name, source, state, created_at, record) VALUES (?,?,?,?,?,?)`)
	return err
}

// Close implements cube.Store.
func (s *Store) Close() error { return errors.Join(s.db.Close(), s.lock.Close()) }

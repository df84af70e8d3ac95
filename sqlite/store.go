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
	wal  *wal

	sandboxes, snapshots, plans, answers statements
}

var _ cube.Store = (*Store)(nil)

// Open opens the database at path, making or migrating it where need be. One
// process can have it open, by an flock on path.lock: another gets ErrConflict. A file
// that is damaged is ErrCorrupt, one of a newer version ErrIncompatible.
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
	ctx := context.Background()
	for _, step := range []func(context.Context, string) error{s.check, s.migrate} {
		if err := step(ctx, path); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if s.wal, err = openWAL(path + "-wal"); err != nil {
		return nil, err
	}
	return s, nil
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

// touch makes the file with its mode, before SQLite makes it with another, and gives
// one that somebody has copied back its mode again. The log gets that of the file.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the records: %w", err)
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return fmt.Errorf("make the records their owner's alone: %w", err)
	}
	return nil
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

// check reads the whole database, which takes about 1 ms for 1,000 records: damage is
// better found now than when the record is needed.
func (s *Store) check(ctx context.Context, path string) error {
	var found string
	err := s.db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found)
	switch {
	case err != nil && broken(err):
		found = err.Error()
	case err != nil:
		return fmt.Errorf("open the records in %s: %w", path, cause(ctx, err))
	case found == "ok":
		return nil
	}
	return fmt.Errorf("the records in %s are damaged (%s); restore the file from a copy, or move it and %s-wal away and lose the records of what runs: %w",
		path, found, path, cube.ErrCorrupt)
}

func (s *Store) migrate(ctx context.Context, path string) error {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.db, sub)
	if err != nil {
		return fmt.Errorf("migrations of the records: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("version of the records in %s: %w", path, cause(ctx, err))
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; have > newest {
		return fmt.Errorf("the records in %s are of version %d, this program knows %d; run the newer program again, or use another --state-dir: %w",
			path, have, newest, cube.ErrIncompatible)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the records in %s: %w", path, cause(ctx, err))
	}
	return nil
}

func (s *Store) prepare() (err error) {
	for _, t := range []struct {
		table
		into *statements
	}{{sandboxes, &s.sandboxes}, {snapshots, &s.snapshots}, {plans, &s.plans}, {answers, &s.answers}} {
		if *t.into, err = t.prepare(s.db); err != nil {
			return err
		}
	}
	return nil
}

// Close implements cube.Store.
func (s *Store) Close() error { return errors.Join(s.wal.close(), s.db.Close(), s.lock.Close()) }

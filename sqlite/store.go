package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

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

	turn chan struct{} // held by who uses the following
	conn *sql.Conn     // the only one, from Open to Close

	begin, commit, rollback              *sql.Stmt
	sandboxes, snapshots, plans, answers statements
	prepared                             []*sql.Stmt // all of them
}

var _ cube.Store = (*Store)(nil)

// Open opens the database at path, making or migrating it where need be. One
// process can have it open, by an flock on path.lock: another gets ErrConflict. A file
// that is damaged is ErrCorrupt, one of a newer version ErrIncompatible.
func Open(path string) (*Store, error) {
	s := &Store{turn: make(chan struct{}, 1)}
	if err := s.open(path); err != nil {
		s.release() // what there is to say is said
		return nil, err
	}
	return s, nil
}

func (s *Store) open(path string) (err error) {
	if s.lock, err = lock(path + ".lock"); err != nil {
		return err
	}
	if err := touch(path); err != nil {
		return err
	}
	if s.db, err = sql.Open("sqlite", "file:"+escape(path)+pragmas); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	// There is one writer, and readers come at start only.
	s.db.SetMaxOpenConns(1)
	ctx := context.Background()
	for _, step := range []func(context.Context, string) error{s.check, s.migrate, s.prepare, s.openLog} {
		if err := step(ctx, path); err != nil {
			return err
		}
	}
	return nil
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
		return fmt.Errorf("open the records in %s: %w", path, cause(err))
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
		return fmt.Errorf("version of the records in %s: %w", path, cause(err))
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; have > newest {
		return fmt.Errorf("the records in %s are of version %d, this program knows %d; run the newer program again, or use another --state-dir: %w",
			path, have, newest, cube.ErrIncompatible)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the records in %s: %w", path, cause(err))
	}
	return nil
}

func (s *Store) prepare(ctx context.Context, path string) (err error) {
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return fmt.Errorf("open the records in %s: %w", path, cause(err))
	}
	queries := map[string]**sql.Stmt{"BEGIN IMMEDIATE": &s.begin, "COMMIT": &s.commit, "ROLLBACK": &s.rollback}
	maps.Copy(queries, sandboxes.queries(&s.sandboxes))
	maps.Copy(queries, snapshots.queries(&s.snapshots))
	maps.Copy(queries, plans.queries(&s.plans))
	maps.Copy(queries, answers.queries(&s.answers))
	for query, stmt := range queries {
		if *stmt, err = s.conn.PrepareContext(ctx, query); err != nil {
			return fmt.Errorf("prepare %q: %w", query, cause(err))
		}
		s.prepared = append(s.prepared, *stmt)
	}
	return nil
}

// openLog makes the names of the files durable, now that they are all there.
func (s *Store) openLog(_ context.Context, path string) (err error) {
	if s.wal, err = openWAL(path + "-wal"); err != nil {
		return err
	}
	return syncNames(filepath.Dir(path))
}

// Close implements cube.Store.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.release()
}

// release closes what is open: the statements before their connection, which SQLite
// would keep open for them, and the lock last.
func (s *Store) release() error {
	var errs []error
	if s.wal != nil {
		errs = append(errs, s.wal.close())
	}
	for _, stmt := range s.prepared {
		errs = append(errs, stmt.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

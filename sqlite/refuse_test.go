package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cube "cubesandbox"
)

// filled is a database of many pages, closed.
func filled(t *testing.T) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := write(s, complete(cube.NewSandboxID())); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestADatabaseOfANewerVersionAndACorruptOneAreRefused(t *testing.T) {
	newer, _ := filled(t)
	s := open(t, newer)
	if _, err := s.conn.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(newer); !errors.Is(err, cube.ErrIncompatible) || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("newer: got %v", err)
	}
	for name, damage := range map[string]func(b []byte) []byte{
		"no database":   func([]byte) []byte { return []byte(strings.Repeat("this is no database", 100)) },
		"half":          func(b []byte) []byte { return b[:len(b)/2] },
		"a page less":   func(b []byte) []byte { return b[:len(b)-4096] },
		"zeros within":  func(b []byte) []byte { clear(b[len(b)/2 : len(b)/2+8192]); return b },
		"header broken": func(b []byte) []byte { clear(b[:16]); return b },
	} {
		path, content := filled(t)
		if err := os.WriteFile(path, damage(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s, err := Open(path)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore the file") {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}

func TestWhatIsNotDamageIsNotCalledThat(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "no", "such", "folder", "db")} {
		if _, err := Open(path); err == nil || errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestAnEmptyFileIsANewDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := open(t, path).Sandboxes(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %d records (%v)", len(all), err)
	}
}

func TestARecordThatCannotBeReadIsCorruptAndNamed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	r := complete(cube.NewSandboxID())
	if err := write(s, r); err != nil {
		t.Fatal(err)
	}
	if _, err := s.conn.ExecContext(t.Context(), `UPDATE sandboxes SET metadata = '[1]'`); err != nil {
		t.Fatal(err)
	}
	_, one := s.Sandbox(t.Context(), r.ID)
	_, all := s.Sandboxes(t.Context())
	for _, err := range []error{one, all} {
		if !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), string(r.ID)) {
			t.Errorf("got %v, want that %s is corrupt", err, r.ID)
		}
	}
}

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	cube "cubesandbox"
)

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

// syncNames makes the names in a folder durable.
func syncNames(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		defer d.Close()
		err = d.Sync()
	}
	if err != nil {
		return fmt.Errorf("make the names of the records' files durable: %w", err)
	}
	return nil
}

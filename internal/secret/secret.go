// Package secret keeps the API key of an installation: made at the first start, in
// a file that only its owner may read.
package secret

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	cube "cubesandbox"
)

// form is that of a key: what every version of E2B's clients accepts.
var form = regexp.MustCompile(`^e2b_[0-9a-f]{40}$`)

// Path is where the key of a state directory is.
func Path(stateDir string) string { return filepath.Join(stateDir, "key") }

// Open returns the key, and makes one where there is none.
func Open(stateDir string) (key string, made bool, err error) {
	key, err = Read(stateDir)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	b := make([]byte, 20)
	rand.Read(b) // never fails: it ends the program instead
	key = "e2b_" + hex.EncodeToString(b)
	if err := write(Path(stateDir), key+"\n"); err != nil {
		return "", false, fmt.Errorf("make the API key: %w", err)
	}
	return key, true, nil
}

// write makes a file that is whole or not there, also after a power cut.
func write(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".key-") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link, not a rename: of two who make one at the same time one fails.
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Read returns the key; fs.ErrNotExist where none was made yet.
func Read(stateDir string) (string, error) {
	path := Path(stateDir)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no API key yet; `cube serve` makes one at its first start: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("the API key: %w; it is its owner's alone: run as that user, or set CUBE_API_KEY", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o, and others may have read it: remove it and start the server again for a new key, or: chmod 600 %s: %w",
			path, info.Mode().Perm(), path, cube.ErrInvalid)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to user %d: chown it to the server's user: %w", path, st.Uid, cube.ErrInvalid)
	}
	b := make([]byte, 128)
	n, err := f.Read(b)
	if err != nil && n == 0 {
		return "", fmt.Errorf("%s is empty: remove it and start the server again for a new key: %w", path, cube.ErrInvalid)
	}
	key := strings.TrimSpace(string(b[:n]))
	if !form.MatchString(key) {
		return "", fmt.Errorf("%s does not hold a key (e2b_ and 40 hex digits): remove it and start the server again for a new one: %w", path, cube.ErrInvalid)
	}
	return key, nil
}

// Equal compares secrets in a time that does not tell where they differ.
func Equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Package secret keeps the API key of an installation: made at the first start, in
// a file that only its owner may read.
package secret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// Open returns the key, and makes one where there is none. Of several that make one
// at the same time all get the same; made is true for one of them.
func Open(stateDir string) (key string, made bool, err error) {
	key, err = Read(stateDir)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	b := make([]byte, 20)
	rand.Read(b) // never fails: it ends the program instead
	key = "e2b_" + hex.EncodeToString(b)
	err = write(Path(stateDir), key+"\n")
	if errors.Is(err, fs.ErrExist) {
		key, err = Read(stateDir)
		return key, false, err
	}
	if err != nil {
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
	// A link, not a rename: of two who make one at the same time the second fails.
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Read returns the key; fs.ErrNotExist where none was made yet, cube.ErrInvalid for
// one that is not to be trusted.
func Read(stateDir string) (string, error) {
	path := Path(stateDir)
	// Without O_NONBLOCK a pipe in its place would be waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no API key yet; `cube serve` makes one at its first start: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("the API key: %w; it is its owner's alone: run as that user, or set CUBE_API_KEY", err)
	}
	defer f.Close()
	if err := trusted(f); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024)) // more than any key
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("%s is empty: remove it and start the server again for a new key: %w", path, cube.ErrInvalid)
	}
	if !form.MatchString(key) {
		return "", fmt.Errorf("%s does not hold a key (e2b_ and 40 hex digits): remove it and start the server again for a new one: %w", path, cube.ErrInvalid)
	}
	return key, nil
}

// trusted refuses a file that others may have read, or could have written.
func trusted(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	path := f.Name()
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file: remove it and start the server again for a new key: %w", path, cube.ErrInvalid)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o, and others may have read it: remove it and start the server again for a new key, or: chmod 600 %s: %w",
			path, info.Mode().Perm(), path, cube.ErrInvalid)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could change it: remove it and start the server again for a new key, or: chown %d %s: %w",
			path, st.Uid, os.Geteuid(), path, cube.ErrInvalid)
	}
	return nil
}

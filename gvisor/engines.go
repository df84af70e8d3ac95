package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	cube "cubesandbox"
)

// engines is the directory of installed versions: cube-sentry and cube-network of
// each, for as long as an image needs them. Several engines may share it.
//
// Whoever uses a version has its lock file open and locked, shared: each keeper,
// and each engine its own. What changes which versions there are, or begins to use
// one, holds the lock of the directory.
type engines struct{ dir string }

// programs of a version.
var programs = []string{"cube-sentry", "cube-network"}

// lockName is the lock file of a version, and of the directory. Programs are
// replaced by newer builds; it never is.
const lockName = ".lock"

// lock keeps others from installing, opening and collecting.
func (en engines) lock() (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(en.dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", en.dir, err)
	}
	return f.Close, nil
}

// install copies the programs of binDir to where they stay. The version names the
// directory; a rebuild of the same version replaces the files. They survive a power
// cut when it returns, for images that do will need them. The file that it returns
// says that the version is in use.
func (en engines) install(ctx context.Context, binDir string) (version string, inUse *os.File, err error) {
	defer func() { err = noSpace(err) }()
	src := filepath.Join(binDir, programs[0])
	out, err := exec.CommandContext(ctx, src, "version").Output()
	if err != nil {
		return "", nil, fmt.Errorf("%s version: %w; build it with make", src, err)
	}
	version = strings.TrimSpace(string(out))
	if err := checkVersion(version); err != nil {
		return "", nil, fmt.Errorf("%s: %w", src, err)
	}
	dir := filepath.Join(en.dir, version)
	if err := mkdirOpen(en.dir); err != nil {
		return "", nil, err
	}
	unlock, err := en.lock()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	if err := mkdirOpen(dir); err != nil {
		return "", nil, err
	}
	if err := sweepNew(en.dir); err != nil {
		return "", nil, err
	}
	for _, name := range programs {
		if err := copyIfChanged(filepath.Join(binDir, name), filepath.Join(dir, name)); err != nil {
			return "", nil, err
		}
	}
	for _, d := range []string{dir, en.dir, filepath.Dir(en.dir)} {
		if err := syncDir(d); err != nil {
			return "", nil, err
		}
	}
	inUse, err = en.use(version)
	return version, inUse, err
}

// checkVersion refuses what cannot be the name of a directory: versions are read
// from images too.
func checkVersion(version string) error {
	if version == "" || strings.HasPrefix(version, ".") || strings.ContainsAny(version, "/\x00") || len(version) > 200 {
		return fmt.Errorf("%q is not the name of a version: %w", version, cube.ErrInvalid)
	}
	return nil
}

// begin begins to use an installed version, until the file is closed.
func (en engines) begin(version string) (*os.File, error) {
	unlock, err := en.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return en.use(version)
}

// use is begin for whoever holds the lock of the directory.
func (en engines) use(version string) (*os.File, error) {
	if _, err := os.Stat(en.sentry(version)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(en.dir, version, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// sentry is the path of a version's cube-sentry. Nobody, whom a sentry runs as,
// must be able to read it.
func (en engines) sentry(version string) string { return filepath.Join(en.dir, version, programs[0]) }

// network is the path of a version's cube-network.
func (en engines) network(version string) string { return filepath.Join(en.dir, version, programs[1]) }

// has reports whether a version is installed.
func (en engines) has(version string) bool {
	if checkVersion(version) != nil {
		return false
	}
	_, err := os.Stat(en.sentry(version))
	return err == nil
}

// installed are all versions, in order.
func (en engines) installed() []string {
	var out []string
	names, _ := en.names()
	for _, name := range names {
		if en.has(name) {
			out = append(out, name)
		}
	}
	return out
}

// names are those of all directories, whole or not.
func (en engines) names() ([]string, error) {
	entries, err := os.ReadDir(en.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && checkVersion(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out, err
}

func copyIfChanged(src, dst string) error {
	want, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(dst); err == nil && bytes.Equal(have, want) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(dst), newPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, bytes.NewReader(want))
	if err = errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), dst)
}

// newPrefix begins the names of programs that are being copied.
const newPrefix = ".new-"

// sweepNew removes what installations that were killed had copied, of any version. The
// caller holds the lock of the directory.
func sweepNew(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "*", newPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

package template

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The files of apt that mmdebstrap wrote for the build.
const (
	buildAptOptions = "etc/apt/apt.conf.d/99mmdebstrap"
	sandboxSources  = "etc/apt/sources.list.d/debian.sources"
)

// seal takes out of a new root file system what only the building machine needed
// and makes it equal each time: what the build itself wrote gets the time of the
// newest file that came out of a package. It returns that time.
//
// Times of packaged files stay, because compiled Python files name them.
func seal(root string, sources []source, began time.Time) (time.Time, error) {
	if err := sealApt(root, sources); err != nil {
		return time.Time{}, err
	}
	if err := sealMachineID(root); err != nil {
		return time.Time{}, err
	}
	newest, err := newestBefore(root, began)
	if err != nil {
		return time.Time{}, err
	}
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || !info.ModTime().After(newest) {
			return err
		}
		ts := unix.NsecToTimespec(newest.UnixNano())
		return unix.UtimesNanoAt(unix.AT_FDCWD, file, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("set file times: %w", err)
	}
	return newest, staleBytecode(root)
}

// sealApt leaves apt as a sandbox may use it: no proxy, and only sources that
// every machine may know.
func sealApt(root string, sources []source) error {
	if err := os.Remove(filepath.Join(root, buildAptOptions)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	written, err := filepath.Glob(filepath.Join(root, "etc/apt/sources.list*"))
	if err != nil {
		return err
	}
	for _, file := range written {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	var public []source
	for _, s := range sources {
		if s, ok := s.public(); ok {
			public = append(public, s)
			if err := copyKeyrings(root, s.keyrings()); err != nil {
				return err
			}
		}
	}
	file := filepath.Join(root, sandboxSources)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(deb822(public)), 0o644)
}

// copyKeyrings puts the (public) keys that sources name where they are looked for.
func copyKeyrings(root string, files []string) error {
	for _, file := range files {
		to := filepath.Join(root, file)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		key, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, key, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// machineIDFile is where the guest agent writes the machine-id of a sandbox.
const machineIDFile = "/run/cube/machine-id"

// sealMachineID has every sandbox find its own: it is a link, so nothing is written to
// its disk when it begins.
func sealMachineID(root string) error {
	for _, name := range []string{"etc/machine-id", "var/lib/dbus/machine-id"} {
		file := filepath.Join(root, name)
		if _, err := os.Lstat(filepath.Dir(file)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(machineIDFile, file); err != nil {
			return err
		}
	}
	return nil
}

// newestBefore is the time of the newest file that is older than limit, in whole
// seconds, as packages have them.
func newestBefore(root string, limit time.Time) (time.Time, error) {
	newest := time.Unix(0, 0)
	err := filepath.WalkDir(root, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if t := info.ModTime(); t.After(newest) && t.Before(limit) {
			newest = t
		}
		return nil
	})
	return newest.Truncate(time.Second), err
}

// staleBytecode fails if a compiled Python file does not fit its source any more:
// Python would then compile it at every start, and could not keep the result.
func staleBytecode(root string) error {
	return filepath.WalkDir(filepath.Join(root, "usr/lib"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".pyc") {
			return err
		}
		dir, name := filepath.Split(file)
		module, _, _ := strings.Cut(name, ".")
		source, err := os.Lstat(filepath.Join(filepath.Dir(filepath.Clean(dir)), module+".py"))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !source.Mode().IsRegular() {
			return nil // a link leads out of root, into this machine
		}
		if err != nil {
			return err
		}
		return fitsSource(file, source)
	})
}

// fitsSource compares the header of a compiled file (PEP 552) with its source.
func fitsSource(file string, source fs.FileInfo) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var head [16]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if flags := binary.LittleEndian.Uint32(head[4:]); flags != 0 {
		return nil // checked by its hash, or never
	}
	mtime, size := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if mtime != uint32(source.ModTime().Unix()) || size != uint32(source.Size()) {
		return fmt.Errorf("%s does not fit %s, which is newer than its package: is this machine's clock right?", file, source.Name())
	}
	return nil
}

package template

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	cube "cubesandbox"
)

var (
	nameForm    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	suiteForm   = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,62}$`)
	packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?$`)
	userForm    = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,30}$`)
)

// check finds the first thing that cannot work.
func (d *Definition) check() error {
	if !nameForm.MatchString(d.Name) {
		return d.wrong("", "name", "%q: want lower-case letters, digits and dashes, a letter first", d.Name)
	}
	if folder := filepath.Base(d.absDir()); d.Name != folder {
		return d.wrong("", "name", "%q is not the name of its folder %q; make them equal", d.Name, folder)
	}
	if len(d.Suites) == 0 {
		return d.wrong("", "suites", "is empty; name at least one Debian release, such as \"bookworm\"")
	}
	for _, s := range d.Suites {
		if !suiteForm.MatchString(s) {
			return d.wrong("", "suites", "%q is no name of a Debian release", s)
		}
	}
	for _, p := range d.Packages {
		if !packageForm.MatchString(p) {
			return d.wrong("", "packages", "%q is no name of a Debian package", p)
		}
	}
	for _, h := range d.Hooks {
		if err := d.checkHook(h); err != nil {
			return err
		}
	}
	if !userForm.MatchString(d.User.Name) || d.User.Name == "root" {
		return d.wrong("user", "name", "%q: want a lower-case name that is not root", d.User.Name)
	}
	if d.User.UID < 1000 || d.User.UID > 59999 {
		return d.wrong("user", "uid", "%d: want 1000 to 59999", d.User.UID)
	}
	return d.checkLimits()
}

func (d *Definition) checkHook(name string) error {
	if !filepath.IsLocal(name) {
		return d.wrong("", "hooks", "%q leads out of the folder of the template; move it in", name)
	}
	st, err := os.Stat(filepath.Join(d.dir, name))
	if err != nil {
		return d.wrong("", "hooks", "%q is not there; add it or remove its name", name)
	}
	if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return d.wrong("", "hooks", "%q is no program; chmod +x it", name)
	}
	return nil
}

func (d *Definition) checkLimits() error {
	for _, l := range []struct {
		key            string
		got, low, high int64
	}{
		{"memoryMiB", d.Limits.MemoryMiB, 128, 1 << 20},
		{"cpus", int64(d.Limits.CPUs), 1, 128},
		{"diskMiB", d.Limits.DiskMiB, 64, 16 << 20},
		{"pids", d.Limits.Pids, 16, 4 << 20},
	} {
		if l.got < l.low || l.got > l.high {
			return d.wrong("limits", l.key, "%d: want %d to %d", l.got, l.low, l.high)
		}
	}
	return nil
}

func (d *Definition) absDir() string {
	abs, err := filepath.Abs(d.dir)
	if err != nil {
		return d.dir
	}
	return abs
}

// wrong is an error about a key of a table ("" is the top of the file).
func (d *Definition) wrong(table, key, format string, args ...any) error {
	where := filepath.Join(d.dir, DefinitionFile)
	if line := lineOf(d.src, table, key); line > 0 {
		where = fmt.Sprintf("%s:%d", where, line)
	}
	if table != "" {
		key = table + "." + key
	}
	return fmt.Errorf("%s: %s: %s: %w", where, key, fmt.Sprintf(format, args...), cube.ErrInvalid)
}

// lineOf returns the line of a key, from 1, or 0 when it is not there. The file
// has been decoded without an error before, so a plain scan is enough.
func lineOf(src []byte, table, key string) int {
	at := ""
	for i, raw := range bytes.Split(src, []byte("\n")) {
		line := strings.TrimSpace(string(raw))
		if name, ok := strings.CutPrefix(line, "["); ok {
			if name, _, ok = strings.Cut(name, "]"); ok {
				at = strings.TrimSpace(name)
			}
			continue
		}
		name, _, ok := strings.Cut(line, "=")
		if ok && at == table && strings.EqualFold(strings.TrimSpace(name), key) {
			return i + 1
		}
	}
	return 0
}

// Command patch-gvisor makes the gVisor that cube-sentry is built of: a copy of the module
// with gvisor/patches applied, in the cache, where every checkout finds it. In .cache/gvisor
// of this one it leaves
//
//	src            a link to the copy
//	go.mod, go.sum ours, with src in the module's place: for go build -modfile
//	go.work        the same for what has no -modfile, as GOWORK
//	version        what a sentry of the copy calls itself
//	version-stock  what one of gVisor as it is calls itself
//	packages       the packages in which Go files are changed or added, one a line
//
// Binaries name the link and not the cache, so the same commit makes the same bytes in
// every checkout.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"cubesandbox/internal/modpatch"
)

const (
	module  = "gvisor.dev/gvisor"
	patches = "gvisor/patches"
	out     = ".cache/gvisor"
)

// unused is how long a copy stays that nobody has built of.
const unused = 48 * time.Hour

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "patch-gvisor: %v\n", err)
		os.Exit(1)
	}
}

// pseudo is what a version has to say: time and commit.
var pseudo = regexp.MustCompile(`^v0\.0\.0-([0-9]+-[0-9a-f]+)$`)

func run() error {
	m, err := required()
	if err != nil {
		return err
	}
	upstream := pseudo.FindStringSubmatch(m.Version)
	if upstream == nil {
		return fmt.Errorf("go.mod requires %s %s; want v0.0.0-TIME-COMMIT, which names what images fit", module, m.Version)
	}
	set, err := modpatch.Read(patches)
	if err != nil {
		return fmt.Errorf("%s: %w", patches, err)
	}
	dir, err := cached(upstream[1] + "-" + set.Sum[:12])
	if err != nil {
		return err
	}
	if err := set.Make(m.Dir, dir); err != nil {
		return fmt.Errorf("%s does not fit %s %s:\n%w\nNothing was made. %[1]s/README.md says how patches are carried to another version", patches, module, m.Version, err)
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return err
	}
	sweep(filepath.Dir(dir))
	return leave(dir, set, func(what string) string { return strings.Join([]string{upstream[1], what, runtime.GOARCH}, "-") })
}

// source is where the go command has a module.
type source struct{ Version, Dir string }

// required finds the module, which is downloaded if need be.
func required() (m source, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("%s: %w: %s", cmd, err, text)
	}
	return m, json.Unmarshal(text, &m)
}

// cached is where a copy is kept.
func cached(name string) (string, error) {
	cache := os.Getenv("CUBE_CACHE")
	if cache == "" {
		cache = "/var/cache/cube"
	}
	return filepath.Abs(filepath.Join(cache, "gvisor", name))
}

// sweep removes copies that are not built of any more. What cannot be removed stays.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > unused {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// leave writes what go build and make want to know of the copy.
func leave(dir string, set *modpatch.Set, version func(string) string) error {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	language := goLine.FindString(string(mod))
	errs := []error{link(dir, filepath.Join(out, "src"))}
	for name, text := range map[string][]byte{
		// Relative to go.mod in the root of the checkout, whose place it takes.
		"go.mod":        fmt.Appendf(mod, "\nreplace %s => ./%s/src\n", module, out),
		"go.sum":        sums,
		"go.work":       fmt.Appendf(nil, "%s\n\nuse ../..\n\nreplace %s => ./src\n", language, module),
		"version":       []byte(version(set.Built[:12]) + "\n"),
		"version-stock": []byte(version("stock") + "\n"),
		"packages":      packages(set),
	} {
		errs = append(errs, write(filepath.Join(out, name), text))
	}
	return errors.Join(errs...)
}

// goLine says what Go a module is written in.
var goLine = regexp.MustCompile(`(?m)^go .*$`)

func packages(set *modpatch.Set) []byte {
	var text []byte
	for _, p := range set.Packages() {
		text = fmt.Appendf(text, "%s/%s\n", module, p)
	}
	return text
}

// link has name lead to a folder, from one moment to the next.
func link(dir, name string) error {
	if to, err := os.Readlink(name); err == nil && to == dir {
		return nil
	}
	tmp := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := os.Symlink(dir, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// write writes a file, unless it says the same already: what it is dated decides what is
// done again.
func write(name string, text []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(name, text, 0o644)
}

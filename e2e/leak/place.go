package leak

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts counts those of this mount namespace that have to do with our directories.
func mounts(w Where) (map[string]int, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		root, point := f[3], f[4]
		for _, dir := range []string{w.RunDir, w.StateDir} {
			// root names the source of a bind mount, within its file system.
			if below(point, dir) || dir != "" && strings.Contains(root, dir) {
				out[point+" from "+root]++
			}
		}
	}
	return out, err
}

// cgroups counts the directories below our node in each hierarchy.
func cgroups(node string) (map[string]int, error) {
	out := map[string]int{}
	if node == "" {
		return out, nil
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if !ok || len(f) < 5 || !strings.HasPrefix(right, "cgroup") {
			continue
		}
		if err := walk(filepath.Join(f[4], node), out, func(e fs.DirEntry) bool { return e.IsDir() }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sockets counts those that are bound below dir, those whose file is gone included.
func sockets(dir string) (map[string]int, error) {
	table, err := unixTable()
	out := map[string]int{}
	for _, s := range table {
		if below(s.path, dir) {
			out[s.path] = 1 // each connection has the name too
		}
	}
	return out, err
}

// notes are what an image store writes beside an image whenever it gets to it: that it is
// durable, as one with memory in it may need it to be, and which of its files it has read.
var notes = []string{"durable", "verified"}

// files counts everything below the directories, but notes, and but pages of deleted images
// that a sandbox has memory in: those are as little left behind as the sandbox.
func files(dirs ...string) (map[string]int, error) {
	out := map[string]int{}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if err := walk(dir, out, func(e fs.DirEntry) bool { return !slices.Contains(notes, e.Name()) }); err != nil {
			return nil, err
		}
	}
	for path := range maps.Clone(out) {
		if base := filepath.Dir(path); filepath.Base(path) == "pages" && filepath.Base(filepath.Dir(base)) == "bases" && inUse(path) {
			maps.DeleteFunc(out, func(p string, _ int) bool { return p == base || below(p, base) })
		}
	}
	return out, nil
}

// inUse reports whether a sandbox has memory in pages: it holds a shared lock.
func inUse(pages string) bool {
	f, err := os.Open(pages)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// ours is the first line of a stack that names a function of this module: what is below it
// depends on what the goroutine is doing.
func ours(stack string) string {
	for line := range strings.Lines(stack) {
		if strings.HasPrefix(line, "cubesandbox/") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// walk counts what is below dir. What goes away meanwhile is no error.
func walk(dir string, out map[string]int, count func(fs.DirEntry) bool) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case count(e):
			out[path]++
		}
		return nil
	})
}

// goroutines counts those of this module's packages by where they were started;
// the one that asks, and those of tests, do not count.
func goroutines() map[string]int {
	buf := make([]byte, 1<<20)
	n := runtime.Stack(buf, true)
	for n == len(buf) {
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	out := map[string]int{}
	for stack := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		_, creator, ok := strings.Cut(stack, "created by ")
		if !ok || !strings.Contains(stack, "cubesandbox/") || strings.Contains(creator, "testing.") {
			continue
		}
		name, _, _ := strings.Cut(creator, " in goroutine")
		if strings.Contains(stack, "(*Engine).askEarly(") {
			continue // it asks by itself, for a moment
		}
		first, _, _ := strings.Cut(ours(stack), "(0x")
		out["in "+first+", started by "+name]++
	}
	return out
}

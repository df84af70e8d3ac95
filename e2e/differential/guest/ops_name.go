package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileNames change names, and what is said of files.
func fileNames() []operation {
	return []operation{
		{"rename a file that is open", false, true, rename},
		{"replace a file by another one's rename", false, true, replace},
		{"unlink a file that is open", false, true, func(g *guest, r *rand.Rand) (string, error) { return "", g.newGhost(r) }},
		{"hard and symbolic links", false, true, links},
		{"make and remove a tree", false, true, trees},
		{"rename a directory", false, true, renameDir},
		{"many small files", false, true, manyFiles},
		{"mode, owner and attribute", false, true, attributes},
		{"change a file of the lower layer", false, true, changeLower},
		{"remove and replace files of the lower layer", false, true, removeLower},
	}
}

func (g *guest) unique(what string) string {
	g.names++
	return filepath.Join(layerDir, fmt.Sprintf("%s-%d", what, g.names))
}

func rename(g *guest, r *rand.Rand) (string, error) {
	f := g.file([]string{"small", "medium", "dense", "sparse"}[r.IntN(4)])
	to := g.unique("moved")
	if err := os.Rename(f.path, to); err != nil {
		return "", err
	}
	f.path = to
	off, n := f.place(r, 5000)
	return to, g.put(f, off, n, r.Uint64())
}

// replace is what editors do. The file that was there is no longer held.
func replace(g *guest, r *rand.Rand) (string, error) {
	f := g.file([]string{"small", "log"}[r.IntN(2)])
	fd, err := unix.Open(f.path+".new", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	old := *f
	f.fd = fd
	g.keep[fd] = true
	delete(g.keep, old.fd)
	return f.path, errors.Join(g.put(f, 0, 1+r.Int64N(100_000), r.Uint64()), os.Rename(f.path+".new", f.path), unix.Close(old.fd))
}

func links(g *guest, r *rand.Rand) (string, error) {
	f := g.file("cut")
	hard, soft := g.unique("hard"), g.unique("soft")
	if err := errors.Join(os.Link(f.path, hard), os.Symlink(f.path, soft)); err != nil {
		return "", err
	}
	fd, err := unix.Open(hard, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	by := &file{name: hard, fd: fd}
	off, n := by.place(r, 9000)
	return hard, errors.Join(g.put(by, off, n, r.Uint64()), unix.Close(fd))
}

func trees(g *guest, r *rand.Rand) (string, error) {
	root := g.unique("tree")
	for range 5 {
		dir := filepath.Join(root, fmt.Sprint(r.IntN(3)), fmt.Sprint(r.IntN(3)))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return "", err
		}
		b := make([]byte, r.IntN(9000))
		fillBytes(b, r.Uint64())
		if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o640); err != nil {
			return "", err
		}
	}
	return root, os.RemoveAll(filepath.Join(root, fmt.Sprint(r.IntN(3))))
}

func renameDir(g *guest, r *rand.Rand) (string, error) {
	from, to := filepath.Join(layerDir, "many"), filepath.Join(layerDir, "many-aside")
	if err := errors.Join(os.Rename(from, to), os.WriteFile(filepath.Join(to, fmt.Sprint(r.IntN(60))), []byte(fmt.Sprint(r.Uint64())), 0o600)); err != nil {
		return "", err
	}
	return "", os.Rename(to, from)
}

func manyFiles(_ *guest, r *rand.Rand) (string, error) {
	for range 30 {
		path := filepath.Join(layerDir, "many", fmt.Sprint(r.IntN(80)))
		if r.IntN(3) == 0 {
			if err := os.RemoveAll(path); err != nil {
				return "", err
			}
			continue
		}
		b := make([]byte, r.IntN(20_000))
		fillBytes(b, r.Uint64())
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return "", err
		}
	}
	return "", nil
}

func attributes(g *guest, r *rand.Rand) (string, error) {
	path := g.file([]string{"small", "medium", "tmpfs small"}[r.IntN(3)]).path
	if err := errors.Join(os.Chmod(path, os.FileMode(r.IntN(0o1000))), os.Chown(path, r.IntN(2000), r.IntN(2000))); err != nil {
		return "", err
	}
	return wordOf(unix.Setxattr(path, "user.differential", []byte(fmt.Sprint(r.Uint64())), 0)), nil
}

func lowerPaths() ([]string, error) {
	paths, err := filepath.Glob(lowerPattern)
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: nothing there", lowerPattern)
	}
	return paths, err
}

// changeLower writes to files that are copied up by that.
func changeLower(g *guest, r *rand.Rand) (string, error) {
	paths, err := lowerPaths()
	if err != nil {
		return "", err
	}
	for range 5 {
		path := paths[r.IntN(len(paths))]
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		f := &file{name: path, fd: fd}
		off, n := f.place(r, 9000)
		if err := errors.Join(g.put(f, off, n, r.Uint64()), unix.Close(fd)); err != nil {
			return "", err
		}
	}
	return "", nil
}

func removeLower(_ *guest, r *rand.Rand) (string, error) {
	paths, err := lowerPaths()
	if err != nil {
		return "", err
	}
	r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	b := make([]byte, 3000)
	fillBytes(b, r.Uint64())
	return paths[0], errors.Join(os.Remove(paths[0]), os.Remove(paths[1]), os.WriteFile(paths[1], b, 0o644), os.Rename(paths[2], paths[0]))
}

// Package modpatch makes a changed copy of a Go module: with files that are added, and with
// edits that say what text they were written for, so that a new version of the module stops
// the build until somebody has looked.
package modpatch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Names in a directory of patches.
const (
	editsDir = "edits"
	// addedDir begins with an underscore, so that the go command takes what is in it for
	// no packages of ours.
	addedDir = "_added"
)

// Set is all that is changed in a module.
type Set struct {
	edits map[string][]*Edit // by path in the module, in the order of their names
	added map[string][]byte  // by path in the module
	// Sum is a SHA-256, in hex, of everything in it, and Built of what programs are built
	// of, which tests are not.
	Sum, Built string
}

// Read reads a set from a directory: the files below edits, each an Edit, and the tree
// _added, whose files come into the module as they are. Everything else in it is
// documentation.
func Read(dir string) (*Set, error) {
	s := &Set{edits: map[string][]*Edit{}, added: map[string][]byte{}}
	sum, built := sha256.New(), sha256.New()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		top, rest, _ := strings.Cut(name, "/")
		if top != editsDir && top != addedDir {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		into := io.Writer(sum)
		if !strings.HasSuffix(name, "_test.go") {
			into = io.MultiWriter(sum, built)
		}
		fmt.Fprintf(into, "%d %s %d\n%s", len(name), name, len(text), text)
		if top == addedDir {
			s.added[rest] = text
			return nil
		}
		e, err := ParseEdit(name, text)
		if err != nil {
			return err
		}
		s.edits[e.Path] = append(s.edits[e.Path], e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.Sum, s.Built = hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(built.Sum(nil))
	return s, nil
}

// Packages are the folders of the module in which a Go file is changed or added, sorted.
func (s *Set) Packages() []string {
	var dirs []string
	for name := range s.edits {
		dirs = append(dirs, path.Dir(name))
	}
	for name := range s.added {
		if strings.HasSuffix(name, ".go") {
			dirs = append(dirs, path.Dir(name))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// changed returns the files of the module in src that are another, or new.
func (s *Set) changed(src string) (map[string][]byte, error) {
	out := map[string][]byte{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.edits)) {
		edits := s.edits[name]
		text, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: there is no %s any more. Find where its text has gone, and write path and SHA-256 of that into the line \"file\"", edits[0].Name, name)
		}
		if err == nil {
			text, err = Apply(text, edits...)
		}
		errs = append(errs, err)
		out[name] = text
	}
	for name, text := range s.added {
		if _, err := os.Lstat(filepath.Join(src, filepath.FromSlash(name))); err == nil {
			errs = append(errs, fmt.Errorf("%s: there is a file of that name already. Give this another, or make it an edit of that", path.Join(addedDir, name)))
		}
		out[name] = text
	}
	return out, errors.Join(errs...)
}

// Make copies the module in src to dst, with the changes; nothing of it is writable. It
// appears there whole or not at all; one that is there already is taken for what Make would
// make.
func (s *Set) Make(src, dst string) error {
	if _, err := os.Stat(dst); err == nil {
		return nil
	}
	changed, err := s.changed(src)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dst), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	err = fs.WalkDir(os.DirFS(src), ".", func(name string, d fs.DirEntry, err error) error {
		to := filepath.Join(tmp, filepath.FromSlash(name))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case changed[name] != nil:
			return nil
		}
		return copyFile(filepath.Join(src, filepath.FromSlash(name)), to)
	})
	for name, text := range changed {
		to := filepath.Join(tmp, filepath.FromSlash(name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o444))
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, dst); err != nil {
		if _, there := os.Stat(dst); there == nil {
			return nil // somebody else was quicker
		}
		return err
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

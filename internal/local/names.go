package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	cube "cubesandbox"
)

// Names are those of templates: files in the state directory that hold an image's
// id. Several processes may use them: a build gives a name while a server reads.
type Names struct{ dir string }

// NamesIn are those of a state directory.
func NamesIn(stateDir string) Names { return Names{filepath.Join(stateDir, "names")} }

// Set has name mean the template id from now on, also after a power cut.
func (n Names) Set(name string, id cube.ImageID) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(n.dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(string(id) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(n.dir, name)); err != nil {
		return err
	}
	return errors.Join(syncDir(n.dir), syncDir(filepath.Dir(n.dir)))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Names returns the template that each name means. One that cannot be read is left out,
// with its error joined to the others'.
func (n Names) Names() (map[string]cube.ImageID, error) {
	entries, err := os.ReadDir(n.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]cube.ImageID{}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(n.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // taken away meanwhile
		}
		id, perr := cube.ParseImageID(strings.TrimSpace(string(b)))
		if err = errors.Join(err, perr); err != nil {
			errs = append(errs, fmt.Errorf("name of template %s: %w; build it again", e.Name(), err))
			continue
		}
		out[e.Name()] = id
	}
	return out, errors.Join(errs...)
}

// staleAfter is how old what a killed process was writing must be to be removed.
const staleAfter = time.Hour

// sweep removes what killed processes have left.
func (n Names) sweep() {
	left, _ := filepath.Glob(filepath.Join(n.dir, ".new-*"))
	for _, path := range left {
		if fi, err := os.Lstat(path); err == nil && time.Since(fi.ModTime()) > staleAfter {
			os.Remove(path)
		}
	}
}

// RemoveName takes a name away; one that is not there is no error.
func (n Names) RemoveName(name string) error {
	err := os.Remove(filepath.Join(n.dir, filepath.Base(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(n.dir))
}

// Names returns the template that each name means.
func (s *Session) Names() (map[string]cube.ImageID, error) { return s.names.Names() }

// Template finds a published template by name or id.
func (s *Session) Template(nameOrID string) (cube.Image, error) {
	names, err := s.Names()
	if err != nil && names == nil {
		return cube.Image{}, err
	}
	id, named := names[nameOrID]
	if !named {
		if id, err = cube.ParseImageID(nameOrID); err != nil {
			return cube.Image{}, fmt.Errorf("template %q: %w", nameOrID, cube.ErrNotFound)
		}
	}
	return s.Images.Image(id)
}

// RemoveTemplate takes a template and its names away. Sandboxes that were made
// from it are not touched; its space is given back by the server's collection when the
// last of them has ended.
func (s *Session) RemoveTemplate(nameOrID string) (cube.ImageID, error) {
	img, err := s.Template(nameOrID)
	if err != nil {
		return "", err
	}
	names, err := s.Names()
	if err != nil && names == nil {
		return "", err
	}
	for name, id := range names {
		if id == img.ID {
			if err := s.names.RemoveName(name); err != nil {
				return "", err
			}
		}
	}
	return img.ID, s.Images.Hide(img.ID)
}

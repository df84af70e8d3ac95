package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cube "cubesandbox"
)

// Names of templates are files in the state directory that hold an image's id.

func (s *Session) namesDir() string { return filepath.Join(s.opt.StateDir, "names") }

// setName has name mean the template id from now on.
func (s *Session) setName(name string, id cube.ImageID) error {
	if err := os.MkdirAll(s.namesDir(), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.namesDir(), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(string(id) + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(s.namesDir(), name))
}

// Names returns the template that each name means.
func (s *Session) Names() (map[string]cube.ImageID, error) {
	entries, err := os.ReadDir(s.namesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]cube.ImageID{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.namesDir(), e.Name()))
		if err != nil {
			return nil, err
		}
		id, err := cube.ParseImageID(strings.TrimSpace(string(b)))
		if err != nil {
			return nil, fmt.Errorf("name of template %s: %w; build it again", e.Name(), err)
		}
		out[e.Name()] = id
	}
	return out, nil
}

// Template finds a published template by name or id.
func (s *Session) Template(nameOrID string) (cube.Image, error) {
	names, err := s.Names()
	if err != nil {
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
// from it are not touched.
func (s *Session) RemoveTemplate(nameOrID string) (cube.ImageID, error) {
	img, err := s.Template(nameOrID)
	if err != nil {
		return "", err
	}
	names, err := s.Names()
	if err != nil {
		return "", err
	}
	if err := s.Images.Delete(img.ID); err != nil {
		return "", err
	}
	for name, id := range names {
		if id == img.ID {
			if err := os.Remove(filepath.Join(s.namesDir(), name)); err != nil {
				return "", err
			}
		}
	}
	return img.ID, nil
}

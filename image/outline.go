package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	cube "cubesandbox"
)

// outline is of a manifest what must be known of all images at the same time.
type outline struct {
	image     cube.Image
	baseBytes []int64
	// manifest is the file that it is of, as it was then.
	manifest identity
}

// outline is that of an image, published or hidden. It is read once for as long as its
// manifest is the same file.
func (s *Store) outline(id cube.ImageID) (outline, error) {
	path := s.Dir(id)
	for _, name := range []string{manifestName, hiddenName} {
		fi, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			continue // what that means is found out below
		}
		if o, ok := s.outlines.Load(path); ok && o.(outline).manifest == identityIn(fi) {
			return o.(outline), nil
		}
		m, err := s.any(id)
		if err != nil {
			return outline{}, err
		}
		o := outline{m.Image, m.BaseBytes, identityIn(fi)}
		// A manifest that was replaced in between has another identity.
		if settled(fi) {
			s.outlines.Store(path, o)
		}
		return o, nil
	}
	m, err := s.any(id)
	return outline{image: m.Image, baseBytes: m.BaseBytes}, err
}

// uses says of each base which images have pages in it, hidden ones too. While a
// manifest cannot be read of an image that may have some, that is an error.
func (s *Store) uses() (map[cube.BaseID][]cube.ImageID, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	uses := map[cube.BaseID][]cube.ImageID{}
	for _, id := range ids {
		o, err := s.outline(id)
		if errors.Is(err, cube.ErrNotFound) || errors.Is(err, cube.ErrCorrupt) && !s.hasTable(id) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, base := range o.image.Bases {
			uses[base] = append(uses[base], id)
		}
	}
	return uses, nil
}

// hasTable reports whether there is a table in the directory of an image whose manifest
// does not say.
func (s *Store) hasTable(id cube.ImageID) bool {
	entries, err := os.ReadDir(s.Dir(id))
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return isSources(e.Name()) })
}

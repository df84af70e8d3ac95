package image

import (
	"errors"
	"fmt"

	cube "cubesandbox"
)

// Needed is what images name, and so must stay.
type Needed struct {
	Engines     map[string]struct{} // versions of the sentry
	FileSystems map[string]struct{} // digests
}

// Needed returns what any image names, hidden ones too. A manifest that cannot be read
// is an error: what it names is not known. One that is hidden, or garbage, is not:
// nobody can make anything of its image any more.
func (s *Store) Needed() (Needed, error) {
	n := Needed{map[string]struct{}{}, map[string]struct{}{}}
	ids, err := s.ids()
	if err != nil {
		return Needed{}, fmt.Errorf("what images need: %w", err)
	}
	for _, id := range ids {
		o, err := s.outline(id)
		if errors.Is(err, cube.ErrNotFound) {
			continue
		}
		if err != nil {
			return Needed{}, fmt.Errorf("what images need: %w", err)
		}
		im := o.image
		n.Engines[im.Engine] = struct{}{}
		n.FileSystems[im.Rootfs] = struct{}{}
		n.FileSystems[im.Agent] = struct{}{}
	}
	return n, nil
}

// any is the manifest of an image that is published or hidden. One that is being hidden
// is found in one of the two places.
func (s *Store) any(id cube.ImageID) (manifest, error) {
	d, err := s.directory(id)
	if err != nil {
		return manifest{}, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if errors.Is(err, cube.ErrNotFound) {
		if m, err = d.manifest(hiddenName); err != nil && !errors.Is(err, cube.ErrUnavailable) {
			return manifest{}, notFound(id)
		}
	}
	if errors.Is(err, cube.ErrCorrupt) {
		torn, terr := d.torn()
		if terr != nil {
			return manifest{}, terr
		}
		if torn {
			return manifest{}, notFound(id)
		}
	}
	return m, err
}

package fake

import (
	"fmt"

	cube "cubesandbox"
)

// Store is the images of a machine in the form in which an image store gives them.
type Store struct{ Machine *Machine }

// Images returns all of them.
func (s Store) Images() ([]cube.Image, error) { return s.Machine.Images(), nil }

// Image returns one.
func (s Store) Image(id cube.ImageID) (cube.Image, error) {
	for _, im := range s.Machine.Images() {
		if im.ID == id {
			return im, nil
		}
	}
	return cube.Image{}, fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
}

// Delete removes one.
func (s Store) Delete(id cube.ImageID) error { return s.Machine.DeleteImage(id) }

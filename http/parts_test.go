package http

import (
	"maps"

	cube "cubesandbox"
)

// names never change while a test runs requests at the same time.
type names map[string]cube.ImageID

func (n names) Names() (map[string]cube.ImageID, error) { return maps.Clone(n), nil }

func (n names) RemoveName(name string) error {
	delete(n, name)
	return nil
}

package gvisor

import (
	"fmt"
	"os"

	cube "cubesandbox"
)

// source is an image that is open: what a restore reads from.
type source struct {
	image cube.Image
	files []*os.File
}

// reopen gives descriptors of their own: several restores read at the same time,
// each from the start, and the image may have no name any more.
func (s source) reopen() ([]*os.File, error) {
	var out []*os.File
	for _, f := range s.files {
		n, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("image %s: %w", s.image.ID, err)
		}
		out = append(out, n)
	}
	return out, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

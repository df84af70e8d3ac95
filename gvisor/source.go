package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	cube "cubesandbox"
)

// source is an image that is open, and the keeper that can restore it: what a life
// is made from.
type source struct {
	image cube.Image
	files []*os.File
	k     *keeper
	let   func() // lets go of the keeper
}

// close closes the files and lets go of the keeper.
func (s source) close() {
	closeAll(s.files)
	s.let()
}

// openImage opens an image that can be restored here.
func (e *Engine) openImage(ctx context.Context, id cube.ImageID) (source, error) {
	f, err := e.images.OpenImage(id)
	if err != nil {
		return source{}, err
	}
	src, err := e.sourceOf(ctx, f.Image, f.Files)
	if err != nil {
		return source{}, fmt.Errorf("image %s: %w", id, err)
	}
	return src, nil
}

// sourceOf finds the keeper for open files, which it closes when there is none.
func (e *Engine) sourceOf(ctx context.Context, im cube.Image, files []*os.File) (source, error) {
	k, err := e.holdKeeper(ctx, im.Engine)
	if err == nil {
		src := source{im, files, k, func() { e.keepers.release(k) }}
		missing := lacking(im.CPU, k.info.CPU)
		if missing == nil {
			return src, nil
		}
		src.let()
		err = fmt.Errorf("this machine's processor lacks features that it was made with: %s: %w", strings.Join(missing, ", "), cube.ErrIncompatible)
	}
	closeAll(files)
	if im.FilesBytes > 0 && errors.Is(err, cube.ErrIncompatible) {
		err = fmt.Errorf("%w; its files can be used: resume from them", err)
	}
	return source{}, err
}

// mostNamed is how many missing features an error names.
const mostNamed = 5

// lacking returns which features are missing, the first few of them. An image or a
// keeper that is older says nothing of its processor; gVisor then finds out.
func lacking(want, have []string) []string {
	if len(have) == 0 {
		return nil
	}
	var missing []string
	for _, f := range want {
		if !slices.Contains(have, f) {
			if missing = append(missing, f); len(missing) == mostNamed {
				break
			}
		}
	}
	return missing
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

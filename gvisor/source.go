package gvisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cube "cubesandbox"
	"cubesandbox/image"
)

// source is an image that is open, and the keeper that can restore it: what a life
// is made from.
type source struct {
	image cube.Image
	files *image.Files
	k     *keeper
	let   func() // lets go of the keeper
}

// close closes the files and lets go of the keeper.
func (s source) close() {
	s.files.Close()
	s.let()
}

// openImage opens an image that can be restored here.
func (e *Engine) openImage(ctx context.Context, id cube.ImageID) (source, error) {
	f, err := e.images.OpenImage(id)
	if err != nil {
		return source{}, err
	}
	src, err := e.sourceOf(ctx, f.Image, f)
	if err != nil {
		return source{}, fmt.Errorf("image %s: %w", id, err)
	}
	return src, nil
}

// sourceOf finds the keeper for open files, which it closes when there is none.
func (e *Engine) sourceOf(ctx context.Context, im cube.Image, files *image.Files) (source, error) {
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
	files.Close()
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

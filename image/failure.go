package image

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	cube "cubesandbox"
)

// unreadable is the error for a file of an image that could not be opened or read. Only
// what says something about the content is corruption: too few descriptors, too little
// memory or a disk that does not answer is not, for corruption is a reason to throw an
// image away.
func (d *directory) unreadable(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.missing(name)
	case notAFile(err):
		return &cube.CorruptError{Image: d.id, File: name, Detail: fmt.Sprintf("it cannot be read: %v", err)}
	}
	return fmt.Errorf("image %s: %s cannot be read: %w", d.id, name, unavailable(err))
}

// notAFile reports whether something else is where a file was: a directory, or a link
// in a circle.
func notAFile(err error) bool {
	return errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// unavailable is what the system has refused. It may not the next time.
func unavailable(err error) error {
	if err == nil || errors.Is(err, cube.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", cube.ErrUnavailable, err)
}

package image

import (
	"context"
	"fmt"
	"os"

	cube "cubesandbox"
)

// Files are the opened files of an image's memory, in the engine's order: kernel,
// pages-meta, pages.
type Files struct {
	Image cube.Image
	Files []*os.File
}

// Close closes them.
func (f *Files) Close() {
	for _, x := range f.Files {
		x.Close()
	}
}

// OpenImage opens the memory of an image for a restore. Its files are those that were
// verified when it was written, or they are verified now. ErrIncompatible where the
// image has files only.
func (s *Store) OpenImage(id cube.ImageID) (_ *Files, err error) {
	d, err := s.directory(id)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		return nil, err
	}
	if m.Image.FilesOnly {
		return nil, fmt.Errorf("image %s has files and no memory; boot it from its files: %w", id, cube.ErrIncompatible)
	}
	out := &Files{Image: m.Image}
	for _, want := range m.Files[:len(memoryNames)] {
		f, err := s.openFile(context.Background(), d, m, want)
		if err != nil {
			out.Close()
			return nil, err
		}
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// OpenDisk opens the files of an image, a tar, whatever has become of its memory. They
// are verified as those of OpenImage are. ErrNotFound where it has none.
func (s *Store) OpenDisk(id cube.ImageID) (*os.File, cube.Image, error) {
	d, err := s.directory(id)
	if err != nil {
		return nil, cube.Image{}, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		return nil, cube.Image{}, err
	}
	want, ok := m.file(diskName)
	if !ok {
		return nil, cube.Image{}, fmt.Errorf("files of image %s, apart from its memory: %w", id, cube.ErrNotFound)
	}
	f, err := s.openFile(context.Background(), d, m, want)
	if err != nil {
		return nil, cube.Image{}, err
	}
	return f, m.Image, nil
}

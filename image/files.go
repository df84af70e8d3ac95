package image

import (
	"context"
	"fmt"
	"os"

	cube "cubesandbox"
)

// Files are the opened files of an image's memory. As long as somebody has the pages
// open, those of the bases too, they stay on disk, whatever is deleted: their open file
// descriptions hold a shared flock.
type Files struct {
	Image cube.Image
	// Files are the engine's, in its order: kernel, pages-meta, pages.
	Files []*os.File
	// Sources is the table that says what lies in the pages of which base; nil: nothing
	// does.
	Sources *os.File
	// Bases are in the order of Image.Bases.
	Bases []Base

	// closed is what is to be done when they have been closed, or nil.
	closed func()
}

// Pages is the file of the image's own pages.
func (f *Files) Pages() *os.File { return f.Files[pagesIndex] }

// Close closes them.
func (f *Files) Close() {
	for _, x := range f.Files {
		x.Close()
	}
	if f.Sources != nil {
		f.Sources.Close()
	}
	for _, b := range f.Bases {
		b.Pages.Close()
	}
	if f.closed != nil {
		f.closed()
	}
}

// Reopen gives descriptors of their own, which read from the start: several restores
// read at the same time, and the files may have no name any more.
func (f *Files) Reopen() (_ *Files, err error) {
	out := &Files{Image: f.Image}
	defer func() {
		if err != nil {
			out.Close()
			err = fmt.Errorf("image %s: %w", f.Image.ID, unavailable(err))
		}
	}()
	for i, x := range f.Files {
		n, err := again(x, i == pagesIndex)
		if err != nil {
			return nil, err
		}
		out.Files = append(out.Files, n)
	}
	if f.Sources != nil {
		if out.Sources, err = again(f.Sources, false); err != nil {
			return nil, err
		}
	}
	for _, b := range f.Bases {
		n, err := again(b.Pages, true)
		if err != nil {
			return nil, err
		}
		out.Bases = append(out.Bases, Base{b.ID, n})
	}
	return out, nil
}

// again opens for reading what is open.
func again(f *os.File, pages bool) (*os.File, error) {
	n, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err == nil && pages {
		if _, err = lockPages(n); err != nil {
			n.Close()
		}
	}
	return n, err
}

// OpenImage opens the memory of an image for a restore. Its files, and the pages of its
// bases, are those that were verified when they were written, or they are verified now;
// a base that is missing or damaged is a *cube.CorruptError that names it.
// ErrIncompatible where the image has files only.
func (s *Store) OpenImage(id cube.ImageID) (out *Files, err error) {
	err = s.steady(id, func(d *directory, m manifest) (err error) {
		out, err = s.openMemory(context.Background(), d, m)
		return err
	})
	return out, err
}

func (s *Store) openMemory(ctx context.Context, d *directory, m manifest) (_ *Files, err error) {
	if m.Image.FilesOnly {
		return nil, fmt.Errorf("image %s has files and no memory; boot it from its files: %w", d.id, cube.ErrIncompatible)
	}
	out := &Files{Image: m.Image}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, want := range m.Files[:len(memoryNames)] {
		f, err := s.openFile(ctx, d, m, want)
		if err != nil {
			return nil, err
		}
		out.Files = append(out.Files, f)
	}
	there, err := lockPages(out.Files[pagesIndex])
	if err == nil && !there {
		err = notFound(d.id)
	}
	if err != nil {
		return nil, err
	}
	if want, ok := m.sources(); ok {
		if out.Sources, err = s.openFile(ctx, d, m, want); err != nil {
			return nil, err
		}
	}
	for _, id := range m.Image.Bases {
		f, err := s.openBase(ctx, d.id, id)
		if err != nil {
			return nil, err
		}
		out.Bases = append(out.Bases, Base{id, f})
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

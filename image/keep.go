package image

import (
	"fmt"
	"os"
	"path/filepath"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

var fpKeepRenamed = failpoint.New("image/keep/renamed")

// Keep hands out the verified files of an image that will never be published: for
// clones, which need it for the time of a restore. The image has no name on disk
// afterwards, and so can be no base.
func (w *Writer) Keep() (_ *Files, err error) {
	defer w.Abort()
	return w.files()
}

// KeepBase is Keep for clones that go on to have pages in it: those are a base, which
// Image.Base names, for as long as somebody has them open or an image has pages in them.
// They are summed only when an image is published that does.
func (w *Writer) KeepBase() (_ *Files, err error) {
	defer w.Abort()
	out, err := w.files()
	if err != nil {
		return nil, err
	}
	if err := w.park(out); err != nil {
		out.Close()
		return nil, noSpace(fmt.Errorf("saved state: keep its pages: %w", err))
	}
	s, base := w.s, w.base
	out.Image.Base, out.closed = base, func() { s.freeBase(base) }
	return out, nil
}

// files hands the files over.
func (w *Writer) files() (_ *Files, err error) {
	m := manifest{Image: cube.Image{ID: w.id}}
	for i, f := range w.Files {
		fi, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if err := whole(memoryNames[i], f, fi.Size()); err != nil {
			return nil, fmt.Errorf("saved state: %s: %w", memoryNames[i], err)
		}
		m.Image.PagesBytes = fi.Size()
	}
	if err := w.table(&m); err != nil {
		return nil, fmt.Errorf("saved state: %w", err)
	}
	out := &Files{Image: m.Image, Files: w.Files}
	w.Files = nil
	if len(m.Image.Bases) > 0 {
		out.Sources, w.Sources = w.Sources, nil
	}
	for _, id := range m.Image.Bases {
		b := w.held[id]
		delete(w.held, id)
		b.d.Close()
		out.Bases = append(out.Bases, Base{id, b.pages})
	}
	return out, nil
}

// park leaves of the directory the pages, under the name of the base.
func (w *Writer) park(out *Files) error {
	if _, err := lockPages(out.Files[pagesIndex]); err != nil {
		return err
	}
	if err := out.Files[pagesIndex].Chmod(0o400); err != nil {
		return err
	}
	for _, name := range []string{memoryNames[0], memoryNames[1], sourcesName, diskName} {
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
			return err
		}
	}
	to := w.s.baseDir(w.base)
	if err := os.Rename(w.dir, to); err != nil {
		return err
	}
	w.dir = to // what fails from here on removes it
	if err := fpKeepRenamed.Hit(); err != nil {
		return err
	}
	w.dir = ""
	return nil
}

package image

import (
	"errors"
	"fmt"
	"io"
	"os"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
)

// hold makes sure that a base stays until the Writer has ended.
func (w *Writer) hold(id cube.BaseID) error {
	if w.held[id] != nil {
		return nil
	}
	b, err := w.s.holdBase(id)
	if err != nil {
		return fmt.Errorf("image %s: %w", w.id, inBase(id.Image(), id, err))
	}
	w.held[id] = b
	return nil
}

// readTable reads one from its beginning.
func readTable(f *os.File) (pagetable.Table, error) {
	return pagetable.Read(io.NewSectionReader(f, 0, 1<<62))
}

// table reads what the engine has written of where pages lie, takes out what it does not
// need, and enters the bases into the manifest.
func (w *Writer) table(m *manifest) error {
	m.Image.Base, m.Image.Bases, m.Image.SharedBytes, m.BaseBytes = w.base, nil, 0, nil
	fi, err := w.Sources.Stat()
	if err != nil || fi.Size() == 0 {
		return err
	}
	written, err := readTable(w.Sources)
	if err != nil {
		return fmt.Errorf("image %s: %s: %w", w.id, sourcesName, err)
	}
	t := written.Pruned()
	if !t.Equal(written) {
		if err := rewriteTable(w.Sources, t); err != nil {
			return err
		}
	}
	if err := w.within(t); err != nil {
		return fmt.Errorf("image %s: %s: %w", w.id, sourcesName, err)
	}
	m.lieIn(t)
	return nil
}

// rewriteTable writes a table into an open file. One without entries is an empty file.
func rewriteTable(f *os.File, t pagetable.Table) error {
	if err := f.Truncate(0); err != nil || t.Empty() {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return pagetable.Write(f, t)
}

// within reports what a table names that is not there. The bases are held from here on.
func (w *Writer) within(t pagetable.Table) error {
	if len(t.Names) > MaxBases {
		return fmt.Errorf("memory in the pages of %d others, %d are the most; write some of it out", len(t.Names), MaxBases)
	}
	for name, ranges := range t.Ranges() {
		pages := w.Files[pagesIndex]
		if name != "" {
			id, err := cube.ParseBaseID(name)
			if err == nil && id == w.base {
				err = errors.New("it names itself")
			}
			if err == nil {
				err = w.hold(id)
			}
			if err != nil {
				return err
			}
			pages = w.held[id].pages
		}
		fi, err := pages.Stat()
		if err != nil {
			return err
		}
		if end := ranges[len(ranges)-1].To; end > uint64(fi.Size()) {
			return fmt.Errorf("memory at byte %d of the pages of %q, which have %d", end, name, fi.Size())
		}
	}
	return nil
}

// lieIn enters the bases of a table.
func (m *manifest) lieIn(t pagetable.Table) {
	m.Image.Bases, m.Image.SharedBytes, m.BaseBytes = nil, 0, nil
	for i, bytes := range t.Bytes() {
		m.Image.Bases = append(m.Image.Bases, cube.BaseID(t.Names[i]))
		m.BaseBytes = append(m.BaseBytes, bytes)
		m.Image.SharedBytes += bytes
	}
}

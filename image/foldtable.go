package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
	"cubesandbox/internal/failpoint"
)

var (
	fpFoldPlaced = failpoint.New("image/fold/placed")
	fpFoldNamed  = failpoint.New("image/fold/named")
)

// readTableOf reads the table of a published image, verified.
func (s *Store) readTableOf(ctx context.Context, id cube.ImageID) (out imageTable, err error) {
	err = s.steady(id, func(d *directory, m manifest) error {
		want, ok := m.sources()
		if !ok {
			return fmt.Errorf("image %s: it has no table: %w", id, cube.ErrNotFound)
		}
		t, err := s.tableIn(ctx, d, m, want)
		out = imageTable{t, want}
		return err
	})
	return out, err
}

func (s *Store) tableIn(ctx context.Context, d *directory, m manifest, want fileSum) (pagetable.Table, error) {
	f, err := s.openFile(ctx, d, m, want)
	if err != nil {
		return pagetable.Table{}, err
	}
	defer f.Close()
	t, err := readTable(f)
	if err != nil { // it has its sums, and so is what was saved
		err = &cube.CorruptError{Image: d.id, File: want.Name, Detail: err.Error()}
	}
	return t, err
}

// copiesIn is the table of a base that has copies of others' pages; an empty one for
// another base, and for one that is damaged.
func (s *Store) copiesIn(ctx context.Context, id cube.BaseID) (pagetable.Table, error) {
	d, m, err := s.baseAt(s.baseDir(id), id)
	if err != nil {
		return pagetable.Table{}, passing(err)
	}
	defer d.Close()
	want, ok := m.sources()
	if !ok {
		return pagetable.Table{}, nil
	}
	t, err := s.tableIn(ctx, d, m, want)
	return t, passing(err)
}

// passing leaves of errors those that say nothing of what is on the disk.
func passing(err error) error {
	if errors.Is(err, cube.ErrNotFound) || errors.Is(err, cube.ErrCorrupt) {
		return nil
	}
	return err
}

// idle returns the size of the pages of a deleted image, in bytes, and whether somebody
// has them open.
func (s *Store) idle(id cube.BaseID) (size int64, open bool, err error) {
	f, err := os.Open(filepath.Join(s.baseDir(id), pagesName))
	if err != nil {
		return 0, true, gone(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, true, err
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, true, nil
	}
	return fi.Size(), false, err
}

// replaceTable gives an image another table, which says of other places that they have
// the same memory. The zero value: the image has another one than it had by now, or is
// gone.
func (s *Store) replaceTable(ctx context.Context, id cube.ImageID, was imageTable, t pagetable.Table) (_ imageTable, err error) {
	dir, lock, err := s.stage("table-")
	if err != nil {
		return imageTable{}, err
	}
	defer lock.Close()
	defer os.RemoveAll(dir)
	f, err := os.OpenFile(filepath.Join(dir, sourcesName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return imageTable{}, err
	}
	defer f.Close()
	if err := pagetable.Write(f, t); err != nil {
		return imageTable{}, err
	}
	sums, err := sum(ctx, f, 0)
	if err == nil {
		err = errors.Join(f.Chmod(0o400), f.Sync())
	}
	if err != nil {
		return imageTable{}, err
	}
	d, err := s.hold(id)
	if err != nil {
		return imageTable{}, passing(err)
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		return imageTable{}, passing(err)
	}
	if now, _ := m.sources(); now.Name != was.file.Name || !slices.Equal(now.CRC, was.file.CRC) {
		return imageTable{}, nil
	}
	sums.Name = nextSources(was.file.Name)
	if sums, err = d.placeTable(m, f, sums, t); err != nil {
		return imageTable{}, fmt.Errorf("image %s: another table: %w", id, err)
	}
	return imageTable{t, sums}, nil
}

// nextSources is the name of the table that follows that of a name.
func nextSources(name string) string {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, sourcesName+"."))
	return sourcesName + "." + strconv.Itoa(n+1)
}

// placeTable makes a table that is synced that of an image. After a failure the image is
// what it was.
func (d *directory) placeTable(was manifest, f *os.File, sums fileSum, t pagetable.Table) (_ fileSum, err error) {
	if err := os.Rename(f.Name(), filepath.Join(d.path, sums.Name)); err != nil {
		return fileSum{}, err
	}
	old, _ := was.sources()
	m := was
	placed := func() (err error) {
		if err := fpFoldPlaced.Hit(); err != nil {
			return err
		}
		// A rename changes it.
		if sums.Identity, err = identityOf(f); err != nil {
			return err
		}
		m.Files = slices.Clone(was.Files)
		m.Files[slices.IndexFunc(m.Files, func(f fileSum) bool { return f.Name == old.Name })] = sums
		m.lieIn(t)
		return d.replace(m)
	}
	if err := placed(); err != nil {
		return fileSum{}, errors.Join(err, d.Remove(sums.Name))
	}
	err = fpFoldNamed.Hit()
	if err == nil {
		err = d.self.Sync()
	}
	if err != nil {
		return fileSum{}, errors.Join(err, d.replace(was), d.Remove(sums.Name))
	}
	return sums, d.Remove(old.Name)
}

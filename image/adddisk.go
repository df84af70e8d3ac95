package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

var (
	fpAddDiskPlaced     = failpoint.New("image/add-disk/placed")
	fpAddDiskNamed      = failpoint.New("image/add-disk/named")
	fpDropMemoryUnnamed = failpoint.New("image/drop-memory/unnamed")
)

// nextName is the manifest that will take the place of another.
const nextName = "manifest.next"

// AddDisk adds to a published image what its sandbox has written to disk, a tar that
// write writes, and returns what the image is then. It is durable if the image is.
// After a failure the image is what it was. ErrExists where it has one.
func (s *Store) AddDisk(ctx context.Context, id cube.ImageID, write func(*os.File) error) (_ cube.Image, err error) {
	dir, lock, err := s.stage("disk-")
	if err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: %w", id, err))
	}
	defer lock.Close()
	defer os.RemoveAll(dir)
	f, err := os.OpenFile(filepath.Join(dir, diskName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: %w", id, err))
	}
	defer f.Close()
	if err := write(f); err != nil {
		return cube.Image{}, err
	}
	beginWriteback(f)
	sums, err := sum(ctx, f, 0)
	if err == nil && sums.Size == 0 {
		err = errors.New("nothing was written")
	}
	if err == nil {
		err = errors.Join(f.Chmod(0o400), f.Sync())
	}
	if err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: %s: %w", id, diskName, err))
	}
	sums.Name = diskName
	im, err := s.placeDisk(id, f, sums)
	if err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: add %s: %w", id, diskName, err))
	}
	return im, nil
}

// placeDisk makes a file that is synced one of an image.
func (s *Store) placeDisk(id cube.ImageID, f *os.File, sums fileSum) (_ cube.Image, err error) {
	d, err := s.hold(id)
	if err != nil {
		return cube.Image{}, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		return cube.Image{}, err
	}
	if _, has := m.file(diskName); has {
		return cube.Image{}, cube.ErrExists
	}
	if err := os.Rename(f.Name(), filepath.Join(d.path, diskName)); err != nil {
		return cube.Image{}, err
	}
	was := m
	placed := func() (err error) {
		if err := fpAddDiskPlaced.Hit(); err != nil {
			return err
		}
		// A rename changes it.
		if sums.Identity, err = identityOf(f); err != nil {
			return err
		}
		bytes, err := onDisk(f)
		if err != nil {
			return err
		}
		m.Files = append(slices.Clip(m.Files), sums)
		m.Image.FilesBytes, m.Image.Bytes = sums.Size, m.Image.Bytes+min(bytes, sums.Size)
		return d.replace(m)
	}
	if err := placed(); err != nil {
		return cube.Image{}, errors.Join(err, d.Remove(diskName))
	}
	err = fpAddDiskNamed.Hit()
	if err == nil {
		err = d.self.Sync()
	}
	if err != nil {
		return cube.Image{}, errors.Join(err, d.replace(was), d.Remove(diskName))
	}
	return m.Image, nil
}

// DropMemory makes a published image one of files only, and returns what it is then.
// After a failure it is what it was, or has files only. Who has its memory open keeps
// that. ErrNotFound where it has no files apart from its memory, ErrConflict where other
// images have memory in its pages.
func (s *Store) DropMemory(id cube.ImageID) (cube.Image, error) {
	d, err := s.hold(id)
	if err != nil {
		return cube.Image{}, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		return cube.Image{}, err
	}
	disk, has := m.file(diskName)
	if !has {
		return cube.Image{}, fmt.Errorf("files of image %s, apart from its memory: %w", id, cube.ErrNotFound)
	}
	if uses, err := s.uses(); err != nil || len(uses[m.Image.Base]) > 0 {
		return cube.Image{}, errors.Join(err, fmt.Errorf("image %s: drop memory: %v have memory in its pages: %w", id, uses[m.Image.Base], cube.ErrConflict))
	}
	f, err := d.open(diskName)
	if err != nil {
		return cube.Image{}, err
	}
	defer f.Close()
	bytes, err := onDisk(f)
	if err != nil {
		return cube.Image{}, err
	}
	m.Format, m.Files = format, []fileSum{disk}
	m.Image.FilesOnly, m.Image.PagesBytes, m.Image.Bytes = true, 0, min(bytes, disk.Size)
	defer s.freeBases(m.Image.Bases)
	m.Image.Base, m.Image.Bases, m.Image.SharedBytes, m.BaseBytes = "", nil, 0, nil
	err = d.replace(m)
	if err == nil {
		err = d.self.Sync()
	}
	if err == nil {
		err = fpDropMemoryUnnamed.Hit()
	}
	if err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: drop memory: %w", id, err))
	}
	return m.Image, d.tidy()
}

// replace puts another manifest into the place of the one that is there. At each
// moment one of both is there, whole.
func (d *directory) replace(m manifest) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	if err := d.Remove(nextName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.OpenFile(nextName, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.Rename(nextName, manifestName)
	}
	if err != nil {
		return errors.Join(err, d.Remove(nextName))
	}
	return nil
}

// dropped reports whether a file is one that the manifest does not name any more.
func (d *directory) dropped(name string) bool {
	if !slices.Contains(memoryNames, name) && !isSources(name) {
		return false
	}
	m, err := d.manifest(manifestName)
	return err == nil && m.Image.FilesOnly
}

// untidy reports whether there may be files that the manifest does not name.
func (d *directory) untidy() bool {
	entries, _ := fs.ReadDir(d.FS(), ".")
	there := map[string]bool{}
	tables := 0
	for _, e := range entries {
		there[e.Name()] = true
		if isSources(e.Name()) {
			tables++
		}
	}
	return there[nextName] || there[diskName] && there[pagesName] || tables > 1 || tables > 0 && !there[pagesName]
}

// tidy removes files that the manifest does not name: whoever was adding, replacing or
// dropping them has ended. The caller holds the directory.
func (d *directory) tidy() error {
	m, err := d.manifest(manifestName)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(d.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		name := e.Name()
		ours := name == nextName || name == diskName || slices.Contains(memoryNames, name) || isSources(name)
		if _, named := m.file(name); ours && !named {
			errs = append(errs, gone(d.Remove(name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image %s: %w", d.id, err)
	}
	return nil
}

// tidy does so with an image, if need be. One whose manifest cannot be read stays as it
// is.
func (s *Store) tidy(id cube.ImageID) error {
	d, err := s.directory(id)
	if err != nil {
		return nil // it is being deleted
	}
	untidy := d.untidy()
	d.Close()
	if !untidy {
		return nil
	}
	if d, err = s.hold(id); err != nil {
		return nil
	}
	defer d.Close()
	if _, err := d.manifest(manifestName); err != nil {
		return nil
	}
	return d.tidy()
}

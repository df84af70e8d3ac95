package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

var (
	fpPublishVerified = failpoint.New("image/publish/verified")
	fpPublishSynced   = failpoint.New("image/publish/synced")
	fpPublishRenamed  = failpoint.New("image/publish/renamed")
)

// Publish verifies what was written and makes it visible; with durable, it also
// survives a power cut from the moment it is visible. After a failure, or when ctx ends
// before it is visible, the image does not exist. What it returns of sizes, of bases and
// of FilesOnly is what was found. A base that is not durable becomes so before the image.
func (w *Writer) Publish(ctx context.Context, im cube.Image, durable bool) (_ cube.Image, err error) {
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	im.ID, im.Durable, im.FilesOnly = w.id, durable, len(w.Files) == 0
	m := manifest{Boot: w.s.boot, Image: im}
	if err := w.table(&m); err != nil {
		return cube.Image{}, noSpace(err)
	}
	parts, err := w.parts()
	if err != nil {
		return cube.Image{}, err
	}
	if durable {
		// The disk writes while the processors sum.
		for _, p := range parts {
			beginWriteback(p.file)
		}
	}
	if err := w.verify(ctx, &m, parts); err != nil {
		return cube.Image{}, err
	}
	if err := w.settleBases(ctx, m.Image.Bases, durable); err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: %w", w.id, err))
	}
	if err := fpPublishVerified.Hit(); err != nil {
		return cube.Image{}, err
	}
	if err := w.describe(m, parts, durable); err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: %w", w.id, err))
	}
	if err := ctx.Err(); err != nil {
		return cube.Image{}, fmt.Errorf("image %s: publish: %w", w.id, err)
	}
	if err := w.show(durable); err != nil {
		return cube.Image{}, noSpace(fmt.Errorf("image %s: publish: %w", w.id, err))
	}
	w.close()
	return m.Image, nil
}

// part is a file of the image.
type part struct {
	name string
	file *os.File
}

// parts are the files that the image will have. An empty Sources is none, nor is an empty
// Disk where there is memory.
func (w *Writer) parts() ([]part, error) {
	var parts []part
	for i, f := range w.Files {
		parts = append(parts, part{memoryNames[i], f})
	}
	for _, p := range []part{{sourcesName, w.Sources}, {diskName, w.Disk}} {
		fi, err := p.file.Stat()
		if err != nil {
			return nil, err
		}
		if fi.Size() > 0 || len(parts) == 0 && p.name == diskName {
			parts = append(parts, p)
		} else if err := os.Remove(filepath.Join(w.dir, p.name)); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// verify checks and sums the files, and enters them into the manifest.
func (w *Writer) verify(ctx context.Context, m *manifest, parts []part) error {
	m.Image.Bytes, m.Image.PagesBytes, m.Image.FilesBytes = 0, 0, 0
	for _, p := range parts {
		s, err := sum(ctx, p.file, 0)
		if err != nil {
			return noSpace(fmt.Errorf("image %s: verify %s: %w", w.id, p.name, err))
		}
		s.Name = p.name
		if err := whole(p.name, p.file, s.Size); err != nil {
			return fmt.Errorf("image %s: %s: %w", w.id, p.name, err)
		}
		if s.Identity, err = closed(p.file); err != nil {
			return err
		}
		m.Files = append(m.Files, s)
		switch p.name {
		case memoryNames[pagesIndex]:
			m.Image.PagesBytes = s.Size
		case diskName:
			m.Image.FilesBytes = s.Size
		}
		bytes, err := onDisk(p.file)
		if err != nil {
			return err
		}
		m.Image.Bytes += min(bytes, s.Size)
	}
	return nil
}

// closed makes a file one that nobody opens for writing, and returns what it is then.
func closed(f *os.File) (identity, error) {
	if err := f.Chmod(0o400); err != nil {
		return identity{}, err
	}
	return identityOf(f)
}

// settleBases does to bases what must be done before an image that has pages in them is
// published.
func (w *Writer) settleBases(ctx context.Context, ids []cube.BaseID, durable bool) error {
	for _, id := range ids {
		if err := w.s.finish(ctx, id); err != nil {
			return inBase(id.Image(), id, err)
		}
		if durable {
			if err := w.s.syncBase(ctx, id); err != nil {
				return inBase(id.Image(), id, err)
			}
		}
	}
	return nil
}

// onDisk is what a file takes, in bytes. A tar of files has holes.
func onDisk(f *os.File) (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Sys().(*syscall.Stat_t).Blocks * 512, nil
}

// describe writes the manifest, and makes all of it durable if that is wanted.
func (w *Writer) describe(m manifest, parts []part, durable bool) error {
	m.Format = m.fitting()
	b, err := m.encode()
	if err != nil {
		return err
	}
	f, err := w.create(manifestName)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Chmod(0o400); err != nil || !durable {
		return err
	}
	files := []*os.File{f}
	for _, p := range parts {
		files = append(files, p.file)
	}
	if err := syncAll(files); err != nil {
		return err
	}
	if err := mark(w.dir); err != nil {
		return err
	}
	if err := w.lock.Sync(); err != nil {
		return err
	}
	return fpPublishSynced.Hit()
}

// show is publication: the rename. What fails after it is taken back.
func (w *Writer) show(durable bool) error {
	if err := w.rename(); err != nil {
		return err
	}
	err := fpPublishRenamed.Hit()
	if err == nil && durable {
		err = syncDir(w.s.imagesDir())
	}
	if err != nil {
		return errors.Join(err, os.Rename(w.s.Dir(w.id), w.dir))
	}
	return nil
}

// rename gives the directory its name. Rename would silently replace an empty
// directory only, which no image is.
func (w *Writer) rename() error {
	for {
		err := os.Rename(w.dir, w.s.Dir(w.id))
		taken := errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY)
		if !taken {
			return err
		}
		if err := w.s.vacant(w.id); err != nil {
			return err
		}
		// What was deleted under this id makes way.
		if err := w.s.DeleteHidden(w.id); err != nil && !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrConflict) {
			return err
		}
	}
}

package image

import (
	"context"
	"fmt"
	"os"

	cube "cubesandbox"
)

// trusted reports whether a file is as it was when it was verified: when it was
// written, in this life of the machine or before it was made durable, or later. Where
// that cannot be told it is read.
func (s *Store) trusted(d *directory, m manifest, want fileSum, now identity) bool {
	right, known := s.files.of(now.inode(), now)
	if known && !right || s.syncFailed(d) != nil {
		return false
	}
	n, err := s.notes(d)
	if err != nil || now == n.Wrong[want.Name] {
		return false
	}
	if known || now == n.Right[want.Name] {
		return true
	}
	return now == want.Identity && (m.Boot == s.boot || m.Image.Durable)
}

// openFile opens a file that can be used.
func (s *Store) openFile(ctx context.Context, d *directory, m manifest, want fileSum) (*os.File, error) {
	f, err := d.open(want.Name)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx, d, m, f, want); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// check reads an open file where it is not known to be what was saved.
func (s *Store) check(ctx context.Context, d *directory, m manifest, f *os.File, want fileSum) error {
	now, err := identityOf(f)
	if err == nil && (now.Size != want.Size || !s.trusted(d, m, want, now)) {
		err = s.read(ctx, d, f, want, 0)
	}
	return err
}

// open opens a file of the image for reading.
func (d *directory) open(name string) (*os.File, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, d.unreadable(name, err)
	}
	return f, nil
}

// read compares the whole file with what was saved, and notes what it finds.
func (s *Store) read(ctx context.Context, d *directory, f *os.File, want fileSum, readers int) error {
	found, err := identityOf(f)
	if err != nil {
		return err
	}
	failed := s.syncFailed(d) != nil
	if failed {
		dropCache(f) // the disk may have something else
	}
	detail, err := differs(ctx, f, want, readers)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return d.unreadable(want.Name, err)
	}
	// What was touched while it was read is not known by what it was before.
	if now, err := identityOf(f); err == nil && now == found && (detail != "" || !failed) {
		s.note(d, want.Name, found, detail == "")
	}
	if detail != "" {
		return &cube.CorruptError{Image: d.id, File: want.Name, Detail: detail}
	}
	return nil
}

// differs says how a file differs from what was saved; empty: it does not.
func differs(ctx context.Context, f *os.File, want fileSum, readers int) (string, error) {
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if fi.Size() != want.Size {
		return fmt.Sprintf("it has %d bytes, %d were saved", fi.Size(), want.Size), nil
	}
	got, err := sum(ctx, f, readers)
	if err != nil {
		return "", err
	}
	for i, crc := range want.CRC {
		if i >= len(got.CRC) || got.CRC[i] != crc {
			return fmt.Sprintf("its content differs from what was saved between bytes %d and %d", i*region, min(int64(i+1)*region, want.Size)), nil
		}
	}
	return "", nil
}

// Verify reads every file of an image, and the pages of its bases, and compares them
// with what was saved. The file systems that it needs must be there; they are read once
// in a life of the machine. What it finds is remembered: a damaged file is read again
// before each use until it is right or another. The error is a *cube.CorruptError that
// names the file.
func (s *Store) Verify(ctx context.Context, id cube.ImageID) error {
	return s.verify(ctx, id, true)
}

// VerifyOnce is Verify of the files that were neither written nor read since the
// machine started.
func (s *Store) VerifyOnce(ctx context.Context, id cube.ImageID) error {
	return s.verify(ctx, id, false)
}

func (s *Store) verify(ctx context.Context, id cube.ImageID, again bool) error {
	return s.steady(id, func(d *directory, m manifest) error {
		for _, want := range m.Files {
			if !again && s.seenFile(d, m, want) {
				continue
			}
			if err := s.verifyFile(ctx, d, want); err != nil {
				return err
			}
		}
		for _, base := range m.Image.Bases {
			if err := s.verifyBase(ctx, id, base, again); err != nil {
				return err
			}
		}
		for _, digest := range []string{m.Image.Rootfs, m.Image.Agent} {
			if err := s.verifyRootfs(ctx, id, digest); err != nil {
				return err
			}
		}
		return nil
	})
}

// verifyFile reads a file slowly: somebody else may be in a hurry.
func (s *Store) verifyFile(ctx context.Context, d *directory, want fileSum) error {
	f, err := d.open(want.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.read(ctx, d, f, want, 1)
}

// seen reports whether all files of an image, and the pages of its bases, are known in
// this life of the machine.
func (s *Store) seen(id cube.ImageID) (bool, error) {
	d, err := s.directory(id)
	if err != nil {
		return false, err
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		return false, err
	}
	for _, want := range m.Files {
		if !s.seenFile(d, m, want) {
			return false, nil
		}
	}
	for _, base := range m.Image.Bases {
		if !s.seenBase(base) {
			return false, nil
		}
	}
	return true, nil
}

func (s *Store) seenFile(d *directory, m manifest, want fileSum) bool {
	m.Image.Durable = false // that it can be used unread is another question
	f, err := d.open(want.Name)
	if err != nil {
		return false // a Verify says what is the matter
	}
	defer f.Close()
	now, err := identityOf(f)
	return err == nil && s.trusted(d, m, want, now)
}

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// PutRootfs takes a read-only file system into the store and returns its SHA-256
// in hex. It is copied: whoever installs another version in its place does not write to
// ours. One that is there already costs the reading of it only; one that is there and
// damaged is replaced. When it returns the file system is durable, and for
// the next hour it is not garbage.
func (s *Store) PutRootfs(ctx context.Context, path string) (string, error) {
	src, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("root file system: %w", err)
	}
	defer src.Close()
	digest, err := digestOf(ctx, src)
	if err != nil {
		return "", fmt.Errorf("root file system %s: %w", path, err)
	}
	have, err := s.OpenRootfs(digest)
	switch {
	case err == nil:
		// Whoever put it may have been ended before it was durable.
		err = errors.Join(s.freshen(have, digest), have.Sync(), have.Close(), syncDir(s.rootfsDir()))
	case errors.Is(err, cube.ErrNotFound), errors.Is(err, cube.ErrCorrupt):
		err = s.addRootfs(ctx, src, digest)
	}
	if err != nil {
		return "", noSpace(fmt.Errorf("root file system %s: %w", path, err))
	}
	return digest, nil
}

// addRootfs writes beside, syncs, and renames.
func (s *Store) addRootfs(ctx context.Context, src *os.File, digest string) error {
	dir, lock, err := s.stage("rootfs-")
	if err != nil {
		return err
	}
	defer lock.Close()
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, "f")
	if err := copyFile(ctx, src, tmp); err != nil {
		return err
	}
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	// Somebody may have written to the source since it was read.
	got, err := digestOf(ctx, f)
	if err != nil {
		return err
	}
	if got != digest {
		return fmt.Errorf("it has changed while it was copied: %w", cube.ErrConflict)
	}
	// The note first: it says that the file is new, and so no garbage.
	if err := s.noteRootfs(f, digest); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.rootfsPath(digest)); err != nil {
		return err
	}
	return syncDir(s.rootfsDir())
}

// copyChunk is how much is copied between two looks at a context, in bytes.
const copyChunk = 16 << 20

// copyFile shares the blocks of a file where the file system can, and copies them in
// the kernel where it cannot.
func copyFile(ctx context.Context, src *os.File, dst string) (err error) {
	f, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if unix.IoctlFileClone(int(f.Fd()), int(src.Fd())) == nil {
		return nil
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(f, src, copyChunk)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *Store) rootfsPath(digest string) string {
	return filepath.Join(s.rootfsDir(), digest+erofsSuffix)
}

// OpenRootfs opens a file system by its digest. Until the file is closed, by all to
// whom it was handed on, it is in use and no garbage: its open file description holds
// a shared flock. It is read first where it is not known to be what its name says:
// ErrCorrupt if it is not.
func (s *Store) OpenRootfs(digest string) (*os.File, error) {
	if !isDigest(digest) {
		return nil, fmt.Errorf("file system %q: want a SHA-256 in hex: %w", digest, cube.ErrInvalid)
	}
	f, err := s.lockRootfs(digest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file system %s: %w", digest, cube.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("file system %s: %w", digest, unavailable(err))
	}
	if !s.knownRootfs(f, digest) {
		if err := s.readRootfs(context.Background(), f, digest); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// lockRootfs opens a file system that is not being removed.
func (s *Store) lockRootfs(digest string) (*os.File, error) {
	for {
		f, err := os.Open(s.rootfsPath(digest))
		if err != nil {
			return nil, err
		}
		if err := flock(f, syscall.LOCK_SH); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		there, err := samePlace(f, f.Name())
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there {
			return f, nil
		}
		f.Close() // it was collected, or replaced, while we waited
	}
}

func digestOf(ctx context.Context, f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, reader{ctx, io.NewSectionReader(f, 0, 1<<62)}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// reader stops when ctx ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

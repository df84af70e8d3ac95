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

	cube "cubesandbox"
)

// PutRootfs takes a read-only file system into the store and returns its SHA-256
// in hex. The file is linked where that is possible, so it must not change
// afterwards. One that is there already costs the reading of it only.
func (s *Store) PutRootfs(ctx context.Context, path string) (string, error) {
	src, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("root file system: %w", err)
	}
	defer src.Close()
	h := sha256.New()
	if _, err := io.Copy(h, reader{ctx, src}); err != nil {
		return "", fmt.Errorf("root file system %s: %w", path, err)
	}
	digest := hex.EncodeToString(h.Sum(nil))
	dst := s.rootfsPath(digest)
	if _, err := os.Stat(dst); err == nil {
		return digest, nil
	}
	err = os.Link(path, dst)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	} else if err != nil {
		err = s.copyRootfs(ctx, src, dst)
	}
	if err != nil {
		return "", noSpace(fmt.Errorf("root file system %s: %w", path, err))
	}
	return digest, nil
}

func (s *Store) rootfsPath(digest string) string {
	return filepath.Join(s.rootfsDir(), digest+".erofs")
}

func (s *Store) copyRootfs(ctx context.Context, src *os.File, dst string) error {
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(s.stagingDir(), "rootfs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	f, err := os.OpenFile(filepath.Join(tmp, "f"), os.O_CREATE|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, reader{ctx, src})
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), dst)
}

// OpenRootfs opens a file system by its digest.
func (s *Store) OpenRootfs(digest string) (*os.File, error) {
	if len(digest) != 2*sha256.Size {
		return nil, fmt.Errorf("file system %q: want a SHA-256 in hex: %w", digest, cube.ErrInvalid)
	}
	f, err := os.Open(s.rootfsPath(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file system %s: %w", digest, cube.ErrNotFound)
	}
	return f, err
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

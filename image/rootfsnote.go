package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	cube "cubesandbox"
)

// Names in the directory of file systems, behind the digest.
const (
	erofsSuffix = ".erofs"
	noteSuffix  = ".json"
)

// rootfsNote is what is known of a file system. It lies beside it, is not synced, and
// can be lost: the file is then read again. Its own time of change is when the file
// was last put or read whole.
type rootfsNote struct {
	// Boot is the life of the machine in which it was found to be right.
	Boot     string   `json:"boot"`
	Identity identity `json:"identity"`
}

// rootfsIdentity leaves out the time of change: it also changes when the same file is
// linked into another store, as earlier versions did.
func rootfsIdentity(f *os.File) (identity, error) {
	id, err := identityOf(f)
	id.Ctime = 0
	return id, err
}

func (s *Store) rootfsNotePath(digest string) string {
	return filepath.Join(s.rootfsDir(), digest+noteSuffix)
}

func (s *Store) rootfsNote(digest string) (n rootfsNote) {
	if b, err := os.ReadFile(s.rootfsNotePath(digest)); err != nil || json.Unmarshal(b, &n) != nil {
		return rootfsNote{}
	}
	return n
}

// noteRootfs says that a file has just been read or written, and is right. On a full
// disk only this process knows.
func (s *Store) noteRootfs(f *os.File, digest string) error {
	now, err := rootfsIdentity(f)
	if err != nil {
		return err
	}
	s.rootfs.keep(digest, verdict{now, true})
	b, err := json.Marshal(rootfsNote{s.boot, now})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.rootfsNotePath(digest), b, 0o600); !full(err) {
		return err
	}
	return nil
}

// freshen says that a file which is known has just been put again. A note that is
// there is touched: that a full disk allows.
func (s *Store) freshen(f *os.File, digest string) error {
	now := time.Now()
	err := os.Chtimes(s.rootfsNotePath(digest), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return s.noteRootfs(f, digest)
	}
	return err
}

// knownRootfs reports whether a file is the one that was noted.
func (s *Store) knownRootfs(f *os.File, digest string) bool {
	now, err := rootfsIdentity(f)
	if err != nil {
		return false
	}
	if right, known := s.rootfs.of(digest, now); known {
		return right
	}
	return now == s.rootfsNote(digest).Identity
}

// readRootfs reads a file system whole, and notes what it finds.
func (s *Store) readRootfs(ctx context.Context, f *os.File, digest string) error {
	got, err := digestOf(ctx, f)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && !notAFile(err) {
		return fmt.Errorf("file system %s: %w", digest, unavailable(err))
	}
	if got != digest {
		s.distrustRootfs(f, digest)
		return fmt.Errorf("file system %s: %w: its content has the SHA-256 %s", digest, cube.ErrCorrupt, got)
	}
	if err := s.noteRootfs(f, digest); err != nil {
		return fmt.Errorf("file system %s: %w", digest, unavailable(err))
	}
	return nil
}

// distrustRootfs makes sure that a file is read again before its next use.
func (s *Store) distrustRootfs(f *os.File, digest string) {
	if now, err := rootfsIdentity(f); err == nil {
		s.rootfs.keep(digest, verdict{now, false})
	}
	os.Remove(s.rootfsNotePath(digest))
}

// verifyRootfs finds a file system that an image needs, and reads it if nobody has in
// this life of the machine.
func (s *Store) verifyRootfs(ctx context.Context, id cube.ImageID, digest string) error {
	if digest == "" {
		return nil
	}
	corrupt := func(detail string) error {
		return &cube.CorruptError{Image: id, File: digest + erofsSuffix, Detail: detail}
	}
	f, err := s.OpenRootfs(digest)
	if errors.Is(err, cube.ErrNotFound) {
		return corrupt("the file system is missing")
	}
	if err == nil {
		defer f.Close()
		if s.rootfsNote(digest).Boot != s.boot {
			err = s.readRootfs(ctx, f, digest)
		}
	}
	if errors.Is(err, cube.ErrCorrupt) {
		return corrupt(err.Error())
	}
	return err
}

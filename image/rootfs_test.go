package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	cube "cubesandbox"
)

func putRootfs(t *testing.T, s *Store, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	digest, err := s.PutRootfs(background, path)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestARootfsIsNamedByItsContent(t *testing.T) {
	s := open(t)
	path := filepath.Join(t.TempDir(), "r")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4, "abc"
	for range 2 {
		got, err := s.PutRootfs(context.Background(), path)
		if err != nil || got != want {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	}
	f, err := s.OpenRootfs(want)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, _ := io.ReadAll(f); string(b) != "abc" {
		t.Errorf("got %q", b)
	}
	if _, err := s.OpenRootfs("../../etc/passwd"); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func TestADamagedFileSystemIsRefusedAndPutAgain(t *testing.T) {
	s := open(t)
	b := content(2<<20 + 7)
	digest := putRootfs(t, s, b)
	path := s.rootfsPath(digest)
	for what, spoil := range map[string]func(){
		"flipped": func() { flip(t, path, 1<<20) },
		"cut":     func() { os.Truncate(path, 5) },
		"missing": func() { os.Remove(path) },
	} {
		spoil()
		want := cube.ErrCorrupt
		if what == "missing" {
			want = cube.ErrNotFound
		}
		for who, s := range map[string]*Store{"this": s, "another process": reopen(t, s.dir)} {
			if _, err := s.OpenRootfs(digest); !errors.Is(err, want) {
				t.Errorf("%s, %s: got %v, want %v", what, who, err, want)
			}
		}
		if again := putRootfs(t, s, b); again != digest {
			t.Fatalf("got %s, want %s", again, digest)
		}
		f, err := s.OpenRootfs(digest)
		if err != nil {
			t.Fatalf("%s, put again: %v", what, err)
		}
		f.Close()
	}
	wantNothingStaged(t, s)
}

func TestAnUpgradeInPlaceLeavesWhatOlderImagesNeed(t *testing.T) {
	s := open(t)
	path := filepath.Join(t.TempDir(), "cube-guest.erofs")
	putBack(t, path, content(1<<20))
	old, err := s.PutRootfs(background, path)
	if err != nil {
		t.Fatal(err)
	}
	// As cp does, which keeps the inode.
	f := chmodOpen(t, path)
	if _, err := f.WriteAt(content(1<<20), 0); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	next := reopen(t, s.dir)
	if got, err := next.PutRootfs(background, path); err != nil || got == old {
		t.Fatalf("got %s, %v; want another digest", got, err)
	}
	for what, s := range map[string]*Store{"who has put both": next, "who has put the old one": s, "another": reopen(t, s.dir)} {
		f, err := s.OpenRootfs(old)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got, err := digestOf(background, f); err != nil || got != old {
			t.Errorf("%s: got the content %s, %v; want %s", what, got, err, old)
		}
		f.Close()
	}
}

// Earlier versions linked the file that they were given.
func TestAFileUnderTwoDigestsIsTheContentOfOne(t *testing.T) {
	s := open(t)
	old := putRootfs(t, s, []byte("as it was"))
	path := s.rootfsPath(old)
	flip(t, path, 0)
	now := putRootfs(t, s, read(t, path))
	if err := errors.Join(os.Remove(s.rootfsPath(now)), os.Link(path, s.rootfsPath(now))); err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenRootfs(now)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := s.OpenRootfs(old); !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

func TestAFileSystemOfAnotherDeviceIsCopied(t *testing.T) {
	s, err := Open(filepath.Join(tmpfs(t, "8m"), "s"))
	if err != nil {
		t.Fatal(err)
	}
	digest := putRootfs(t, s, []byte("abc"))
	f, err := s.OpenRootfs(digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "abc" {
		t.Errorf("got %q, %v", b, err)
	}
	wantNothingStaged(t, s)
}

func TestAFileSystemFromBeforeNotesIsReadOnce(t *testing.T) {
	s := open(t)
	digest := putRootfs(t, s, []byte("abc"))
	if err := os.Remove(s.rootfsNotePath(digest)); err != nil {
		t.Fatal(err)
	}
	next := reopen(t, s.dir)
	f, err := next.OpenRootfs(digest)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if !exists(s.rootfsNotePath(digest)) {
		t.Error("nothing was noted")
	}
}

func TestAPutThatIsCancelledLeavesNothing(t *testing.T) {
	s := open(t)
	path := filepath.Join(t.TempDir(), "r")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := s.PutRootfs(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	wantNothingStaged(t, s)
}

func TestWhatChangesWhileItIsPutIsNotPut(t *testing.T) {
	s := open(t)
	path := filepath.Join(t.TempDir(), "r")
	putBack(t, path, []byte("as it was"))
	src, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	digest, err := digestOf(background, src)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, path, 0)
	if err := s.addRootfs(background, src, digest); !errors.Is(err, cube.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	if _, err := s.OpenRootfs(digest); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	wantNothingStaged(t, s)
}

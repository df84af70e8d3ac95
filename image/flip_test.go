package image

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// files are the names in an image that has all of them.
var files = append([]string{manifestName, diskName}, memoryNames...)

// flip changes one bit of a file in place.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f := chmodOpen(t, path)
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << rand.N(8)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func chmodOpen(t *testing.T, path string) *os.File {
	t.Helper()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// putBack writes what a file had.
func putBack(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o400); err != nil {
		t.Fatal(err)
	}
}

func TestEveryRegionOfEveryFileThatIsFlippedIsRefusedByName(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	for _, name := range files {
		path := filepath.Join(s.Dir(im.ID), name)
		was := read(t, path)
		for from := 0; from < len(was); from += region {
			at := from + rand.N(min(region, len(was)-from))
			flip(t, path, int64(at))
			for what, err := range map[string]error{"use": use(s, im.ID), "verify": s.Verify(background, im.ID)} {
				if !names(err, name) {
					t.Errorf("%s of %s with byte %d flipped: got %v, want a CorruptError that names it", what, name, at, err)
				}
			}
			putBack(t, path, was)
			if err := use(s, im.ID); err != nil {
				t.Fatalf("%s is put back: %v", name, err)
			}
		}
	}
	if err := s.Verify(background, im.ID); err != nil {
		t.Error(err)
	}
}

func TestAFileOfAnotherLengthOrNoneIsRefusedByName(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	for _, name := range files {
		path := filepath.Join(s.Dir(im.ID), name)
		was := read(t, path)
		for what, spoil := range map[string]func() error{
			"a byte less":       func() error { return os.Truncate(path, int64(len(was))-1) },
			"cut at a region":   func() error { return os.Truncate(path, int64(len(was)-1)/region*region) },
			"a byte more":       func() error { return os.Truncate(path, int64(len(was))+1) },
			"empty":             func() error { return os.Truncate(path, 0) },
			"missing":           func() error { return os.Remove(path) },
			"another directory": func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if err := use(s, im.ID); !names(err, name) {
				t.Errorf("%s, %s: got %v, want a CorruptError that names it", name, what, err)
			}
			putBack(t, path, was)
			if err := use(s, im.ID); err != nil {
				t.Fatalf("%s is put back: %v", name, err)
			}
		}
	}
}

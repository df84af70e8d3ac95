package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	cube "cubesandbox"
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

func TestNoByteOfTheManifestCanChange(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	path := filepath.Join(s.Dir(im.ID), manifestName)
	was := read(t, path)
	if m, err := decode(was); err != nil || m.Image.ID != im.ID {
		t.Fatalf("the manifest as it was written: %v", err)
	}
	for i := range was {
		for bit := range 8 {
			b := bytes.Clone(was)
			b[i] ^= 1 << bit
			if _, err := decode(b); err == nil {
				t.Errorf("byte %d, bit %d: accepted", i, bit)
			}
		}
		if _, err := decode(was[:i]); err == nil {
			t.Errorf("cut at byte %d: accepted", i)
		}
	}
	if err := os.Rename(s.Dir(im.ID), s.Dir(cube.NewSnapshotID())); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Images(); len(all) != 0 || !names(err, manifestName) {
		t.Errorf("an image under another's name: got %v, %v", all, err)
	}
}

func TestOneBadManifestHidesNoOtherImage(t *testing.T) {
	s := open(t)
	bad, _ := publish(t, s)
	good, _ := publish(t, s)
	flip(t, filepath.Join(s.Dir(bad.ID), manifestName), 7)
	all, err := s.Images()
	if len(all) != 1 || all[0].ID != good.ID || !names(err, manifestName) {
		t.Errorf("got %v, %v", all, err)
	}
}

// rot changes a file so that nothing shows it: as a device does that goes bad. What
// is noted of the file becomes what the file is now.
func rot(t *testing.T, s *Store, id cube.ImageID, name string) {
	t.Helper()
	path := filepath.Join(s.Dir(id), name)
	was := stat(t, path)
	flip(t, path, 0)
	is := stat(t, path)
	if was == is {
		t.Fatalf("writing to %s left its identity as it was", name)
	}
	manifest := filepath.Join(s.Dir(id), manifestName)
	m, err := decode(read(t, manifest))
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Files {
		if m.Files[i].Identity == was {
			m.Files[i].Identity = is
		}
	}
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	putBack(t, manifest, b)
	notes := filepath.Join(s.Dir(id), notesName)
	if b, err := os.ReadFile(notes); err == nil {
		from, _ := json.Marshal(was)
		to, _ := json.Marshal(is)
		putBack(t, notes, bytes.ReplaceAll(b, from, to))
	}
}

func stat(t *testing.T, path string) identity {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := identityOf(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// What is read again shows by rot, which only reading finds.
func TestWhatIsReadAgainBeforeItIsUsed(t *testing.T) {
	copied := func(t *testing.T, s *Store, id cube.ImageID) {
		path := filepath.Join(s.Dir(id), "pages")
		putBack(t, path, read(t, path))
	}
	for name, c := range map[string]struct {
		durable bool
		between func(t *testing.T, s *Store, id cube.ImageID) *Store // before the rot
		after   func(t *testing.T, s *Store, id cube.ImageID)
		read    bool
	}{
		"published, same boot":             {},
		"durable, same boot":               {durable: true},
		"published, another process":       {between: func(t *testing.T, s *Store, _ cube.ImageID) *Store { return reopen(t, s.dir) }},
		"published, next boot":             {between: func(t *testing.T, s *Store, _ cube.ImageID) *Store { return reboot(t, s) }, read: true},
		"durable, next boot":               {durable: true, between: func(t *testing.T, s *Store, _ cube.ImageID) *Store { return reboot(t, s) }},
		"durable, copied":                  {durable: true, after: copied, read: true},
		"published, verified in this boot": {between: verified},
		"published, verified in the boot before": {between: func(t *testing.T, s *Store, id cube.ImageID) *Store {
			return reboot(t, verified(t, s, id))
		}, read: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			im := publishAll(t, s, c.durable)
			if c.between != nil {
				s = c.between(t, s, im.ID)
			}
			rot(t, s, im.ID, "pages")
			if c.after != nil {
				c.after(t, s, im.ID)
			}
			_, err := s.OpenImage(im.ID)
			if c.read && !names(err, "pages") || !c.read && err != nil {
				t.Errorf("got %v; want it to be read: %v", err, c.read)
			}
		})
	}
}

// verified is the store in the next boot, in another process than the one that has
// verified the image.
func verified(t *testing.T, s *Store, id cube.ImageID) *Store {
	next := reboot(t, s)
	if err := use(next, id); err != nil { // reads it
		t.Fatal(err)
	}
	again := reopen(t, s.dir)
	again.boot = next.boot
	return again
}

func TestVerifyFindsWhatLeavesNoTraceAndItIsRemembered(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	path := filepath.Join(s.Dir(im.ID), "pages")
	was := read(t, path)
	rot(t, s, im.ID, "pages")
	if err := use(s, im.ID); err != nil {
		t.Fatalf("before: %v; the test shows nothing", err)
	}
	if err := s.Verify(background, im.ID); !names(err, "pages") {
		t.Fatalf("got %v, want a CorruptError that names pages", err)
	}
	for what, s := range map[string]*Store{"this": s, "the next": reopen(t, s.dir), "a later boot's": reboot(t, s)} {
		if _, err := s.OpenImage(im.ID); !names(err, "pages") {
			t.Errorf("%s process: got %v, want a CorruptError that names pages", what, err)
		}
		if d, _, err := s.OpenDisk(im.ID); err != nil {
			t.Errorf("%s process: the files, which are right: %v", what, err)
		} else {
			d.Close()
		}
	}
	putBack(t, path, was)
	if err := errors.Join(use(s, im.ID), use(reopen(t, s.dir), im.ID), s.Verify(background, im.ID)); err != nil {
		t.Errorf("put back: %v", err)
	}
}

func TestVerifyWantsTheFileSystemsThatAnImageNeeds(t *testing.T) {
	s := open(t)
	var digests []string
	for _, b := range []string{"root", "agent"} {
		digests = append(digests, putRootfs(t, s, []byte(b)))
	}
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	im, err := w.Publish(cube.Image{Rootfs: digests[0], Agent: digests[1]}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(background, im.ID); err != nil {
		t.Fatal(err)
	}
	for _, digest := range digests {
		path := s.rootfsPath(digest)
		was := read(t, path)
		flip(t, path, 0)
		if err := s.Verify(background, im.ID); !names(err, digest+erofsSuffix) {
			t.Errorf("flipped: got %v, want a CorruptError that names the file system", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(background, im.ID); !names(err, digest+erofsSuffix) {
			t.Errorf("missing: got %v, want a CorruptError that names the file system", err)
		}
		putBack(t, path, was)
		if err := s.Verify(background, im.ID); err != nil {
			t.Errorf("put back: %v", err)
		}
	}
}

func TestWhatNobodyHasReadSinceTheMachineStartedIsListed(t *testing.T) {
	s := open(t)
	a, b := publishAll(t, s, true), publishAll(t, s, false)
	want := func(when string, s *Store, want ...cube.ImageID) {
		t.Helper()
		got, err := s.Unverified()
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: got %v, %v; want %v", when, got, err, want)
		}
	}
	want("just written", s)
	next := reboot(t, s)
	want("after a start", next, a.ID, b.ID)
	for _, id := range []cube.ImageID{a.ID, b.ID} {
		if err := next.Verify(background, id); err != nil {
			t.Fatal(err)
		}
	}
	want("all are verified", next)
	flip(t, filepath.Join(s.Dir(a.ID), "kernel"), 0)
	want("one is touched", next, a.ID)
}

package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	cube "cubesandbox"
)

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
	im, err := w.Publish(background, cube.Image{Rootfs: digests[0], Agent: digests[1]}, false)
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

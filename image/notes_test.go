package image

import (
	"path/filepath"
	"testing"

	cube "cubesandbox"
)

func TestOnAFullDiskNotesStayAndNothingWrongIsForgotten(t *testing.T) {
	dir := tmpfs(t, "16m")
	s := reopen(t, dir)
	im := publishAll(t, s, true)
	if err := s.Verify(background, im.ID); err != nil {
		t.Fatal(err)
	}
	rot(t, s, im.ID, "kernel")
	if err := s.Verify(background, im.ID); !names(err, "kernel") {
		t.Fatalf("got %v, want a CorruptError that names kernel", err)
	}
	rot(t, s, im.ID, "pages")
	makeRoom := leave(t, dir, 0)
	notes := filepath.Join(s.Dir(im.ID), notesName)
	was := string(read(t, notes))
	d, err := s.directory(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.verifyFile(background, d, m.Files[pagesIndex]); !names(err, "pages") {
		t.Fatalf("got %v, want a CorruptError that names pages", err)
	}
	if got := string(read(t, notes)); got != was {
		t.Errorf("the notes were %s, and are %s", was, got)
	}
	makeRoom()
	for _, file := range []fileSum{m.Files[0], m.Files[pagesIndex]} {
		for i, s := range []*Store{reopen(t, dir), reboot(t, s), s} { // what the first finds it writes down
			if _, err := s.openFile(background, d, m, file); !names(err, file.Name) {
				t.Errorf("process %d: got %v, want a CorruptError that names %s", i, err, file.Name)
			}
		}
	}
	if exists(filepath.Join(s.Dir(im.ID), newNotesName)) {
		t.Error("half written notes are left")
	}
}

func TestNotesOfManyAreAllKept(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	done := make(chan error)
	for _, name := range files[1:] {
		go func() {
			s, err := Open(s.dir) // each as another process
			if err == nil {
				var d *directory
				if d, err = s.directory(im.ID); err == nil {
					err = s.amend(d, func(n *notes) { n.Wrong[name] = identity{Inode: 1} })
					d.Close()
				}
			}
			done <- err
		}()
	}
	for range files[1:] {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	d, err := s.directory(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n, err := s.notes(d); err != nil || len(n.Wrong) != len(files)-1 {
		t.Errorf("got %v, %v; want %d", n.Wrong, err, len(files)-1)
	}
}

func TestWhatIsDeletedIsForgotten(t *testing.T) {
	s := open(t)
	size := func() (n int) {
		s.files.m.Range(func(_, _ any) bool { n++; return true })
		s.rootfs.m.Range(func(_, _ any) bool { n++; return true })
		return n
	}
	for range 3 {
		im := publishAll(t, s, false)
		for at := range int64(2) { // what is read again after a change takes no more room
			flip(t, filepath.Join(s.Dir(im.ID), "pages"), at)
			if err := s.Verify(background, im.ID); !names(err, "pages") {
				t.Fatalf("got %v, want a CorruptError that names pages", err)
			}
		}
		if size() == 0 {
			t.Fatal("nothing is remembered; the test shows nothing")
		}
		if err := s.Delete(im.ID); err != nil {
			t.Fatal(err)
		}
	}
	digest := putRootfs(t, s, []byte("abc"))
	age(t, s.rootfsNotePath(digest))
	collect(t, s, map[string]cube.GarbageKind{digest: cube.GarbageRootfs})
	if n := size(); n != 0 {
		t.Errorf("%d verdicts are remembered of what is gone", n)
	}
}

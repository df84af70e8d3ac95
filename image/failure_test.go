package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	cube "cubesandbox"
)

// eatDescriptors leaves n descriptors free.
func eatDescriptors(t *testing.T, n int) (release func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: 256, Max: old.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds[:n] {
		syscall.Close(fd)
	}
	return func() {
		for _, fd := range fds[n:] {
			syscall.Close(fd)
		}
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	}
}

// Corruption is a reason to throw an image away; this is none.
func TestDescriptorsThatAreShortAreNoCorruption(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	digest := putRootfs(t, s, []byte("root"))
	if err := os.Remove(s.rootfsNotePath(digest)); err != nil {
		t.Fatal(err)
	}
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	hidden, err := w.Publish(background, cube.Image{Engine: "of the hidden one"}, false)
	if err := errors.Join(err, s.Hide(hidden.ID)); err != nil {
		t.Fatal(err)
	}
	do := map[string]func(s *Store) error{
		"image":  func(s *Store) error { _, err := s.Image(im.ID); return err },
		"use":    func(s *Store) error { return use(s, im.ID) },
		"verify": func(s *Store) error { return s.Verify(background, im.ID) },
		"sync":   func(s *Store) error { return s.Sync(background, im.ID) },
		"needed": func(s *Store) error {
			n, err := s.Needed()
			if _, ok := n.Engines["of the hidden one"]; err == nil && !ok {
				return fmt.Errorf("what a hidden image needs: %w", cube.ErrNotFound)
			}
			return err
		},
		"collect":    func(s *Store) error { _, err := s.Collect(background, false); return err },
		"rootfs":     func(s *Store) error { _, err := s.OpenRootfs(digest); return err },
		"unverified": func(s *Store) error { _, err := s.Unverified(); return err },
	}
	for what, f := range do {
		var failed int
		for n := range 7 {
			next := reboot(t, s) // so that files are read
			age(t, s.Dir(im.ID))
			release := eatDescriptors(t, n)
			err := f(next)
			release()
			if errors.Is(err, cube.ErrCorrupt) || errors.Is(err, cube.ErrNotFound) {
				t.Errorf("%s with %d descriptors: got %v", what, n, err)
			}
			if errors.Is(err, cube.ErrUnavailable) && errors.Is(err, syscall.EMFILE) {
				failed++
			}
		}
		if failed == 0 {
			t.Errorf("%s: there were always enough; the test shows nothing", what)
		}
	}
	if err := errors.Join(use(s, im.ID), s.Verify(background, im.ID)); err != nil {
		t.Error(err)
	}
	d, err := s.directory(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n, err := s.notes(d); err != nil || len(n.Wrong) != 0 {
		t.Errorf("it is noted as wrong: %v, %v", n.Wrong, err)
	}
}

func TestADiskThatDoesNotAnswerIsNoCorruption(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, false)
	d, err := s.directory(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EINTR, syscall.ENOMEM, syscall.ENFILE} {
		err := d.unreadable("pages", &os.PathError{Op: "read", Path: "pages", Err: errno})
		if !errors.Is(err, cube.ErrUnavailable) || !errors.Is(err, errno) || errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("got %v, want ErrUnavailable with %v", err, errno)
		}
	}
	// A descriptor that cannot be read stands for a disk that cannot.
	f, err := os.OpenFile(filepath.Join(s.Dir(im.ID), "pages"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := d.manifest(manifestName)
	if err != nil {
		t.Fatal(err)
	}
	err = s.read(background, d, f, m.Files[pagesIndex], 0)
	if !errors.Is(err, cube.ErrUnavailable) || errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if err := use(s, im.ID); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestNamesThatAreNoImagesStopNobody(t *testing.T) {
	s := open(t)
	im := publishAll(t, s, true)
	for _, name := range []string{"lost+found", string(im.ID) + ".bak"} {
		if err := os.Mkdir(filepath.Join(s.imagesDir(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	putBack(t, filepath.Join(s.imagesDir(), "x"), nil)
	next := reopen(t, s.dir)
	if all, err := next.Images(); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v; want one image", all, err)
	}
	_, hidden := next.Hidden()
	_, needed := next.Needed()
	_, unverified := next.Unverified()
	if err := errors.Join(hidden, needed, unverified); err != nil {
		t.Error(err)
	}
	collect(t, next, nil)
}

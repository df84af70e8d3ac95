package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/powercut"
)

// tmpfs mounts a small file system.
func tmpfs(t *testing.T, size string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts a small tmpfs: run it as root")
	}
	dir = t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestRoomIsSetAsideBeforeAnythingIsWritten(t *testing.T) {
	s, err := Open(tmpfs(t, "8m"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(cube.NewSnapshotID(), 64<<20); !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left in staging: %v", l)
	}
	w, err := s.Begin(cube.NewSnapshotID(), 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 4096)
	im, err := w.Publish(background, cube.Image{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(s.Dir(im.ID), "pages"), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("the pages take %d bytes on disk (%v); what was set aside is not given back", st.Blocks*512, err)
	}
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// leave fills a file system until so many bytes are free.
func leave(t *testing.T, dir string, bytes int64) (makeRoom func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := free(t, dir) - bytes; n > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

// try saves an image of 1 MiB and some, with files. An engine that is deaf does not
// hear of a full disk; reserve says whether room is set aside.
func try(s *Store, reserve int64, deaf, durable bool) (cube.Image, error) {
	w, err := s.Begin(cube.NewSnapshotID(), reserve)
	if err != nil {
		return cube.Image{}, err
	}
	if err := write(w, content(1<<20), content(128<<10)); err != nil && !deaf {
		w.Abort()
		return cube.Image{}, noSpace(err)
	}
	return w.Publish(background, cube.Image{Kind: cube.KindPause}, durable)
}

func TestOnAFullDiskAnImageIsAbsentOrWholeAndTheRoomIsGivenBack(t *testing.T) {
	dir := tmpfs(t, "16m")
	s := reopen(t, dir)
	kept := publishAll(t, s, true)
	for _, reserve := range []int64{0, 1 << 20} {
		for _, deaf := range []bool{false, true} {
			name := fmt.Sprintf("%d bytes set aside, deaf engine %v", reserve, deaf)
			var failed, published int
			for n := int64(0); published < 2; n++ {
				makeRoom := leave(t, dir, n*64<<10)
				before := free(t, dir)
				im, err := try(s, reserve, deaf, n%2 == 0)
				switch {
				case err == nil:
					published++
					if err := s.Verify(background, im.ID); err != nil {
						t.Errorf("%s, %d × 64 KiB: published and not whole: %v", name, n, err)
					}
					if err := s.Delete(im.ID); err != nil {
						t.Errorf("%s, %d × 64 KiB: delete: %v", name, n, err)
					}
				case errors.Is(err, cube.ErrNoSpace):
					failed++
				default:
					t.Fatalf("%s, %d × 64 KiB: got %v, want ErrNoSpace", name, n, err)
				}
				if all, err := s.Images(); err != nil || len(all) != 1 {
					t.Fatalf("%s, %d × 64 KiB: got %v, %v; want the image of before alone", name, n, all, err)
				}
				if after := free(t, dir); after != before {
					t.Errorf("%s, %d × 64 KiB: %d bytes were free, now %d", name, n, before, after)
				}
				makeRoom()
			}
			if failed < 5 {
				t.Errorf("%s: failed %d times only; the disk was not full", name, failed)
			}
		}
	}
	if err := use(s, kept.ID); err != nil {
		t.Errorf("the image of before: %v", err)
	}
	wantNothingStaged(t, s)
}

func TestAFullDiskKeepsNobodyFromOpeningUsingHidingAndDeleting(t *testing.T) {
	dir := tmpfs(t, "32m")
	s := reopen(t, dir)
	im, other := publishAll(t, s, true), publishAll(t, s, false)
	digest := putRootfs(t, s, content(1<<20))
	leave(t, dir, 0)
	if err := os.WriteFile(filepath.Join(dir, "control"), []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	next := reboot(t, s)
	for range 2 { // what is read cannot be noted, but remembered
		f, err := next.OpenRootfs(digest)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := use(next, im.ID); err != nil {
			t.Error(err)
		}
		if err := next.Verify(background, im.ID); err != nil {
			t.Error(err)
		}
	}
	if got, err := next.PutRootfs(background, next.rootfsPath(digest)); err != nil || got != digest {
		t.Errorf("put what is there: got %s, %v", got, err)
	}
	if err := next.Hide(im.ID); err != nil {
		t.Error(err)
	}
	before := free(t, dir)
	for _, id := range []cube.ImageID{im.ID, other.ID} {
		if err := next.Delete(id); err != nil {
			t.Error(err)
		}
	}
	if got := free(t, dir) - before; got < im.Bytes+other.Bytes {
		t.Errorf("%d bytes came back, want %d", got, im.Bytes+other.Bytes)
	}
	wantNothingStaged(t, s)
}

// crammed is a store on a disk where neither a byte nor a name in staging finds room,
// with two images on it.
func crammed(t *testing.T) (s *Store, one, other cube.Image) {
	t.Helper()
	dir := powercut.In(t, t.TempDir(), 32<<20, "-m", "0", "-b", "1024").Dir
	s = reopen(t, filepath.Join(dir, "s"))
	one, other = publishAll(t, s, true), publishAll(t, s, false)
	cram(t, dir, s.stagingDir())
	return s, one, other
}

// cram fills a disk to the last byte, and a directory of it to the last name.
func cram(t *testing.T, dir, in string) {
	t.Helper()
	for _, chunk := range []int{1 << 20, 512} {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("ballast", chunk)))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(make([]byte, chunk))
		}
		f.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk does not fill: %v", err)
		}
	}
	// Other names of one file need no more than room in the directory.
	for n := 0; ; n++ {
		err := os.Link(filepath.Join(dir, "ballast512"), filepath.Join(in, fmt.Sprintf("%-20d", n)))
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhereNoNameFindsRoomAnImageIsDeletedInPlace(t *testing.T) {
	s, one, other := crammed(t)
	if err := os.Rename(s.Dir(one.ID), filepath.Join(s.stagingDir(), trashPrefix+string(one.ID)+"-0123456789ab")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC; the test shows nothing", err)
	}
	if err := s.Hide(one.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteHidden(one.ID); err != nil || exists(s.Dir(one.ID)) {
		t.Errorf("got %v", err)
	}
	if err := use(s, other.ID); err != nil {
		t.Errorf("the other: %v", err)
	}
	if _, err := s.Image(one.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

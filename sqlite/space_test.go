package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	cube "cubesandbox"
)

// smallDisk is a disk of 1 MiB.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts a small tmpfs: run it as root")
	}
	dir = t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestOnAFullDiskABatchIsThereOrNotAndTheStoreGoesOnWhenThereIsRoom(t *testing.T) {
	dir := smallDisk(t)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "db"))
	w := newTwins()
	full := 0
	for full < 10 {
		before := w.now
		w.now++
		w.a.Generation, w.b.Generation = w.now, w.now
		other := complete(cube.NewSandboxID())
		other.Metadata = map[string]string{"k": strings.Repeat("x", 5000)}
		err := s.Apply(context.Background(), cube.Batch{Sandboxes: []cube.Record{w.a, other, w.b}})
		if err != nil {
			full++
			w.now = before
			if !errors.Is(err, cube.ErrNoSpace) {
				t.Errorf("got %v, want no space", err)
			}
		}
		if got := w.found(t, s); got != w.now {
			t.Fatalf("after %v: got generation %d, want %d", err, got, w.now)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.write(t, s, 0)
	if err := errors.Join(s.Sync(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, filepath.Join(dir, "db"))
	if got := w.found(t, s); got != w.now {
		t.Errorf("got generation %d, want %d", got, w.now)
	}
}

func TestWhereADatabaseHasNoRoomOpenSaysSoAndTheNextOneWithRoomWorks(t *testing.T) {
	refused := 0
	for free := 0; ; free += 16 << 10 {
		dir := smallDisk(t)
		filler, path := filepath.Join(dir, "filler"), filepath.Join(dir, "db")
		if err := os.WriteFile(filler, make([]byte, 1<<20-free), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err == nil {
			s.Close()
			break
		}
		refused++
		if !errors.Is(err, cube.ErrNoSpace) {
			t.Errorf("%d bytes free: got %v, want no space", free, err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		w := newTwins()
		s = open(t, path)
		w.write(t, s, 0)
		w.found(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if refused == 0 {
		t.Error("a database was made where there was no room: nothing is shown")
	}
}

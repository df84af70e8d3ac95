package sqlite

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/powercut"
)

// disk is one whose power can be cut.
type disk struct{ powercut.Disk }

func newDisk(t *testing.T, size int64) disk {
	t.Helper()
	return disk{powercut.New(t, size)}
}

// afterCut shows the store as it is found after the power has gone now. Open reads
// every page of it.
func (d disk) afterCut(t *testing.T, show func(*Store)) {
	t.Helper()
	after, remove := d.Cut(t)
	defer remove()
	s, err := Open(filepath.Join(after.Dir, "db"))
	if err != nil {
		t.Errorf("after the power cut: %v", err)
		return
	}
	defer s.Close()
	show(s)
}

// twins are two records that are written together, each time with the next generation,
// and with as much else as is asked for.
type twins struct {
	a, b cube.Record
	now  cube.Generation
}

func newTwins() *twins {
	return &twins{a: complete(cube.NewSandboxID()), b: complete(cube.NewSandboxID())}
}

func (w *twins) write(t *testing.T, s *Store, others int) {
	t.Helper()
	w.now++
	w.a.Generation, w.b.Generation = w.now, w.now
	b := cube.Batch{Sandboxes: []cube.Record{w.a, w.b}, Plans: []cube.Plan{{ID: cube.NewPlanID()}}}
	for range others {
		r := complete(cube.NewSandboxID())
		r.Metadata = map[string]string{"k": strings.Repeat("x", 1000)}
		b.Sandboxes = append(b.Sandboxes, r)
	}
	if err := s.Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

// found is the generation of both, which must be the same; 0 for none.
func (w *twins) found(t *testing.T, s *Store) cube.Generation {
	t.Helper()
	var found [2]cube.Generation
	for i, id := range []cube.SandboxID{w.a.ID, w.b.ID} {
		r, err := s.Sandbox(context.Background(), id)
		if err != nil && !errors.Is(err, cube.ErrNotFound) {
			t.Error(err)
		}
		found[i] = r.Generation
	}
	if found[0] != found[1] {
		t.Errorf("a part of what was applied together is there: generations %v", found)
	}
	return found[0]
}

func TestWhatWasSyncedSurvivesAPowerCutAndWhatWasNotLeavesNothingHalf(t *testing.T) {
	d := newDisk(t, 32<<20)
	s := open(t, filepath.Join(d.Dir, "db"))
	w := newTwins()
	lost := 0
	for cut := range 20 {
		for range rand.IntN(5) {
			w.write(t, s, rand.IntN(60)) // some make SQLite move the log into the database
		}
		w.write(t, s, 0)
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		synced := w.now
		for range 1 + rand.IntN(5) {
			w.write(t, s, rand.IntN(60)*rand.IntN(2))
		}
		d.afterCut(t, func(after *Store) {
			got := w.found(t, after)
			if got < synced || got > w.now {
				t.Errorf("cut %d: %d was synced and %d written; got %d", cut, synced, w.now, got)
			}
			if got < w.now {
				lost++
			}
		})
		if cut%5 == 4 { // from a new log
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, filepath.Join(d.Dir, "db"))
		}
	}
	if lost == 0 {
		t.Error("what was never synced was there after each cut: nothing was cut, and nothing is shown")
	}
	t.Logf("of 20 cuts %d lost something of what was not synced", lost)
}

func TestTheFirstSyncOfANewDatabaseMakesItDurable(t *testing.T) {
	d := newDisk(t, 32<<20)
	s := open(t, filepath.Join(d.Dir, "db"))
	w := newTwins()
	w.write(t, s, 0)
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.afterCut(t, func(after *Store) {
		if got := w.found(t, after); got != 1 {
			t.Errorf("got generation %d, want 1", got)
		}
	})
}

func TestADatabaseThatWasNeverSyncedOpensAfterAPowerCut(t *testing.T) {
	d := newDisk(t, 32<<20)
	s := open(t, filepath.Join(d.Dir, "db"))
	d.afterCut(t, func(after *Store) {
		w := newTwins()
		w.write(t, after, 0)
		w.found(t, after)
	})
	w := newTwins()
	w.write(t, s, 0)
	d.afterCut(t, func(after *Store) { w.found(t, after) })
}

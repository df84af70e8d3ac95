package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"

	cube "cubesandbox"
)

// gate is a disk that says when it begins to sync, and ends when it is told to.
type gate struct {
	begun chan struct{}
	end   chan error
}

func newGate() *gate { return &gate{make(chan struct{}), make(chan error)} }

func (g *gate) flush(*os.File) error {
	g.begun <- struct{}{}
	return <-g.end
}

// gated is a log on such a disk.
func gated(t *testing.T) (*wal, *gate) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := openWAL(path)
	if err != nil {
		t.Fatal(err)
	}
	g := newGate()
	w.flush = g.flush
	return w, g
}

func TestSyncsThatWaitAtTheSameTimeShareOneAndNoneIsAnsweredByOneThatHadBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := gated(t)
		var first, others sync.WaitGroup
		first.Go(func() {
			if err := w.sync(t.Context()); err != nil {
				t.Errorf("first: %v", err)
			}
		})
		<-g.begun
		answered := make(chan struct{}, 50)
		for range cap(answered) {
			others.Go(func() {
				if err := w.sync(t.Context()); err != nil {
					t.Errorf("others: %v", err)
				}
				answered <- struct{}{}
			})
		}
		synctest.Wait()
		g.end <- nil
		first.Wait()
		<-g.begun // a second one, for the others
		synctest.Wait()
		if len(answered) != 0 {
			t.Errorf("%d were answered by a sync that had begun before they were called", len(answered))
		}
		g.end <- nil
		others.Wait() // and no third
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestOneWhoseContextEndsWaitsNoMoreForASyncAndLeavesTheOthersTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := gated(t)
		var all sync.WaitGroup
		all.Go(func() { w.sync(t.Context()) })
		<-g.begun
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		all.Go(func() { gone <- w.sync(ctx) })
		synctest.Wait()
		all.Go(func() {
			if err := w.sync(t.Context()); err != nil {
				t.Errorf("one that stays: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want canceled", err)
		}
		g.end <- nil
		<-g.begun
		g.end <- nil
		all.Wait()
	})
}

func TestAfterASyncThatFailedNoneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := gated(t)
		broken := errors.New("broken disk")
		go func() {
			<-g.begun
			g.end <- broken
		}()
		for range 3 { // of which the disk is asked once
			if err := w.sync(t.Context()); !errors.Is(err, broken) {
				t.Errorf("got %v, want that the disk is broken", err)
			}
		}
	})
}

func TestCloseWaitsForASyncAndNoneIsAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := gated(t)
		var all sync.WaitGroup
		all.Go(func() {
			if err := w.sync(t.Context()); err != nil {
				t.Errorf("the one under way: %v", err)
			}
		})
		<-g.begun
		closed := make(chan error, 1)
		all.Go(func() { closed <- w.close() })
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("closed under a sync")
		}
		g.end <- nil
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := w.sync(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("got %v, want that it is closed", err)
		}
		all.Wait()
	})
}

func TestASyncHoldsUpNoWriteAndNoRead(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	g := newGate()
	s.wal.flush = g.flush
	synced := make(chan error)
	go func() { synced <- s.Sync(context.Background()) }()
	<-g.begun
	r := complete(cube.NewSandboxID())
	if err := write(s, r); err != nil {
		t.Error(err)
	}
	if got, err := s.Sandbox(t.Context(), r.ID); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v (%v), want %+v", got, err, r)
	}
	g.end <- nil
	if err := <-synced; err != nil {
		t.Error(err)
	}
}

func TestALogThatWasRemovedIsReportedAndItsRecordsAreKeptByAStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	r := complete(cube.NewSandboxID())
	if err := errors.Join(write(s, r), os.Remove(path+"-wal")); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); !errors.Is(err, cube.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path).Sandbox(t.Context(), r.ID); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v (%v), want %+v", got, err, r)
	}
}

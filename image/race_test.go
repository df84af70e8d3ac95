package image

import (
	"errors"
	"sync"
	"testing"

	cube "cubesandbox"
)

func TestOneIDMayBeGivenSyncedHiddenAndDeletedAtTheSameTime(t *testing.T) {
	s := open(t)
	id := cube.NewSnapshotID()
	allowed := func(err error) {
		for _, ok := range []error{nil, cube.ErrNotFound, cube.ErrExists, cube.ErrConflict} {
			if errors.Is(err, ok) {
				return
			}
		}
		t.Error(err)
	}
	var wg sync.WaitGroup
	for _, do := range []func() error{
		func() error {
			w, err := s.Begin(id, 0)
			if err != nil {
				return err
			}
			if err := write(w, content(8192), []byte("tar")); err != nil {
				w.Abort()
				return err
			}
			_, err = w.Publish(background, cube.Image{}, false)
			return err
		},
		func() error { return s.Sync(background, id) },
		func() error { return s.Hide(id) },
		func() error { return s.DeleteHidden(id) },
		func() error { return s.Delete(id) },
		func() error { return use(s, id) },
		func() error { return s.Verify(background, id) },
		func() error { _, err := Open(s.dir); return err },
		func() error { _, err := s.Collect(background, false); return err },
	} {
		for range 2 {
			wg.Go(func() {
				for range 40 {
					allowed(do())
				}
			})
		}
	}
	wg.Wait()
	allowed(s.Delete(id))
	wantNothingStaged(t, s)
	wantGone(t, s, id)
}

func TestWhoHoldsAnImageIsAlone(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	d, err := s.hold(im.ID)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	count := func() error { got++; return nil }
	err = errors.Join(unheld(s.Dir(im.ID), count), d.Close())
	if err != nil || got != 0 {
		t.Errorf("held: got %d, %v; want nobody else", got, err)
	}
	if err := unheld(s.Dir(im.ID), count); err != nil || got != 1 {
		t.Errorf("let go: got %d, %v", got, err)
	}
}

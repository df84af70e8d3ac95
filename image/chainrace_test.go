package image

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	cube "cubesandbox"
)

// TestManyAtWorkOnChainsLoseNothing: sandboxes are made, saved and ended, images are
// deleted, copied together and collected, all at the same time and in several stores
// over one directory, as processes have them.
func TestManyAtWorkOnChainsLoseNothing(t *testing.T) {
	s := open(t)
	root, err := first(s, false)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var workers, others sync.WaitGroup
	stop := make(chan struct{})
	for n := range uint64(4) {
		workers.Go(func() {
			w := lineage{s: reopen(t, s.dir), r: rand.New(rand.NewPCG(seed, n)), images: []link{root}}
			for range 20 {
				if err := w.one(); err != nil {
					t.Errorf("seed %d, worker %d: %v", seed, n, err)
					return
				}
			}
			if err := w.leave(); err != nil {
				t.Errorf("seed %d, worker %d: %v", seed, n, err)
			}
		})
	}
	others.Go(func() {
		s := reopen(t, s.dir)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, ferr := s.Fold(background, 0)
			_, cerr := s.Collect(background, false)
			if err := errors.Join(ferr, cerr, s.FreePages()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
				return
			}
		}
	})
	workers.Wait()
	close(stop)
	others.Wait()
	wantMemory(t, s, root)
	if err := errors.Join(s.Verify(background, root.im.ID), s.Delete(root.im.ID)); err != nil {
		t.Error(err)
	}
	collect(t, s, nil)
	wantBases(t, s)
	wantNothingStaged(t, s)
	if all, err := s.Images(); err != nil || len(all) > 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// lineage is who works with images of its own, all descendants of one. The first is
// everybody's.
type lineage struct {
	s      *Store
	r      *rand.Rand
	images []link
	made   int
}

// one does one thing with one of them.
func (w *lineage) one() error {
	i := w.r.IntN(len(w.images))
	l := w.images[i]
	switch n := w.r.IntN(10); {
	case n < 5:
		return w.run(l)
	case n < 8 && i > 0:
		w.images = append(w.images[:i], w.images[i+1:]...)
		return w.s.Delete(l.im.ID)
	case n < 9 && i > 0:
		return w.s.Sync(background, l.im.ID)
	}
	return w.same(l)
}

// run makes a sandbox, whose image may be deleted while it runs, and saves it.
func (w *lineage) run(l link) error {
	f, err := w.s.OpenImage(l.im.ID)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer f.Close()
	if len(w.images) > 1 && w.r.IntN(3) == 0 {
		for i, x := range w.images[1:] {
			if x.im.ID == l.im.ID {
				w.images = append(w.images[:i+1], w.images[i+2:]...)
				if err := w.s.Delete(l.im.ID); err != nil {
					return err
				}
			}
		}
	}
	bases := []cube.BaseID{f.Image.Base}
	for _, b := range f.Bases {
		bases = append(bases, b.ID)
	}
	// As the sentry knows them: by the table that it was restored with.
	t, err := readTable(f.Sources)
	if err != nil {
		return err
	}
	l.at = make([]lies, links)
	for _, e := range t.Files[0].Entries {
		base := f.Image.Base
		if e.Name > 0 {
			base = cube.BaseID(t.Names[e.Name-1])
		}
		for ; e.Start < e.End; e.Start, e.Offset = e.Start+segment, e.Offset+segment {
			l.at[e.Start/segment] = lies{base, e.Offset}
		}
	}
	writer, err := w.s.Begin(cube.NewSnapshotID(), 0, bases...)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	w.made++
	child, err := l.save(writer, w.r.IntN(3) == 0, w.r.IntN(links))
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	w.images = append(w.images, child)
	return nil
}

func (w *lineage) same(l link) error {
	got, err := restored(w.s, l.im.ID)
	if err == nil && !bytes.Equal(got, l.memory) {
		err = fmt.Errorf("image %s is restored with other memory than it was saved with", l.im.ID)
	}
	return err
}

// leave looks at all, and deletes them.
func (w *lineage) leave() error {
	var errs []error
	for _, l := range w.images[1:] {
		errs = append(errs, w.same(l), w.s.Verify(background, l.im.ID), w.s.Delete(l.im.ID))
	}
	if w.made == 0 {
		errs = append(errs, errors.New("nothing was made; the test shows nothing"))
	}
	return errors.Join(errs...)
}

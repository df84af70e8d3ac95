package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	cube "cubesandbox"
)

// asleep makes a sandbox with a file and something in memory, and pauses it.
func asleep(t *testing.T, w *world, o cube.Pausing, change ...func(*cube.NewSandbox)) cube.Record {
	t.Helper()
	r := w.create(change...)
	g, err := w.m.Guest(r.ID)
	must(t, err)
	g.Put("file", "written")
	g.Put("memory", "thought")
	must(t, w.s.Pause(t.Context(), r.ID, o))
	got, err := w.s.Get(t.Context(), r.ID)
	must(t, err)
	return got
}

func wantInside(t *testing.T, w *world, id cube.SandboxID, file, memory string) {
	t.Helper()
	g, err := w.m.Guest(id)
	must(t, err)
	if g.Get("file") != file || g.Get("memory") != memory {
		t.Errorf("inside there are %q and %q, want %q and %q", g.Get("file"), g.Get("memory"), file, memory)
	}
}

func TestWhereTheMemoryCannotBeUsedItsFilesAreOfferedAndTakenIfAskedFor(t *testing.T) {
	ctx := context.Background()
	for name, spoil := range map[string]func(*world, cube.ImageID) error{
		"corrupt":        func(w *world, id cube.ImageID) error { return w.m.Corrupt(id) },
		"another engine": func(w *world, id cube.ImageID) error { return w.m.Age(id) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := asleep(t, w, cube.Pausing{})
			must(t, spoil(w, r.Image))
			_, err := w.s.Resume(ctx, r.ID, cube.Resumption{})
			if err == nil || !strings.Contains(err.Error(), "filesFallback") {
				t.Fatalf("got %v, want that it says how", err)
			}
			if got, err := w.s.Get(ctx, r.ID); err != nil || got.Phase != cube.PhasePaused {
				t.Fatalf("it is %s (%v), want still paused", got.Phase, err)
			}
			got, err := w.s.Resume(ctx, r.ID, cube.Resumption{FilesFallback: true})
			must(t, err)
			if got.Restored != cube.RestoredFiles || got.Identity.AccessToken != r.Identity.AccessToken {
				t.Errorf("got %+v", got)
			}
			wantInside(t, w, r.ID, "written", "")
			use(t, w, got)

			// Where it was asked for at create it is done by itself.
			auto := asleep(t, w, cube.Pausing{}, func(n *cube.NewSandbox) { n.FilesFallback = true })
			must(t, spoil(w, auto.Image))
			got, resumed, err := w.s.Connect(ctx, auto.ID, cube.Resumption{})
			if err != nil || !resumed || got.Restored != cube.RestoredFiles {
				t.Errorf("got %+v, %v (%v)", got, resumed, err)
			}
			w.killAll()
			w.nothingLeft()
		})
	}
}

func TestWholeMemoryIsRestoredAlsoWhereFilesWouldDo(t *testing.T) {
	w := newWorld(t)
	r := asleep(t, w, cube.Pausing{}, func(n *cube.NewSandbox) { n.FilesFallback = true })
	got, err := w.s.Resume(t.Context(), r.ID, cube.Resumption{FilesFallback: true})
	must(t, err)
	if got.Restored != cube.RestoredMemory {
		t.Errorf("got %q", got.Restored)
	}
	wantInside(t, w, r.ID, "written", "thought")
}

func TestAPauseOfFilesOnlyComesBackCold(t *testing.T) {
	w := newWorld(t)
	r := asleep(t, w, cube.Pausing{FilesOnly: true})
	got, _, err := w.s.Connect(t.Context(), r.ID, cube.Resumption{})
	must(t, err)
	if got.Restored != cube.RestoredFiles || got.Identity.AccessToken != r.Identity.AccessToken {
		t.Errorf("got %+v", got)
	}
	wantInside(t, w, r.ID, "written", "")
	// Asked for at resume, whatever was saved.
	must(t, w.s.Pause(t.Context(), r.ID, cube.Pausing{}))
	got, err = w.s.Resume(t.Context(), r.ID, cube.Resumption{Files: true})
	if err != nil || got.Restored != cube.RestoredFiles {
		t.Errorf("got %+v (%v)", got, err)
	}
	w.killAll()
	w.nothingLeft()
}

func TestOtherErrorsOfAResumeOfferNoFiles(t *testing.T) {
	w := newWorld(t)
	r := asleep(t, w, cube.Pausing{}, func(n *cube.NewSandbox) { n.FilesFallback = true })
	w.m.SetMemory(0)
	_, err := w.s.Resume(t.Context(), r.ID, cube.Resumption{})
	if !errors.Is(err, cube.ErrNoCapacity) || strings.Contains(err.Error(), "files") {
		t.Errorf("got %v", err)
	}
}

func TestFilesThatWereNotKeptApartAreRefusedBeforeAnythingStarts(t *testing.T) {
	w := newWorld(t)
	r := asleep(t, w, cube.Pausing{})
	must(t, w.m.DropFiles(r.Image))
	_, err := w.s.Resume(t.Context(), r.ID, cube.Resumption{Files: true})
	if !errors.Is(err, cube.ErrConflict) || !strings.Contains(err.Error(), "with its memory") {
		t.Errorf("got %v", err)
	}
	_, err = w.s.Resume(t.Context(), r.ID, cube.Resumption{})
	must(t, err)
	w.killAll()
	w.nothingLeft()
}

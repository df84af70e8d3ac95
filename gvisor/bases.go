package gvisor

import (
	"context"
	"os"
	"slices"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
)

// load gives a booted life what was saved: pages are used where they lie, if its keeper can
// do that, but for those where writes are to be expected.
func (l life) load(ctx context.Context, f *image.Files, writes []keeperapi.PageRange) error {
	q := keeperapi.Restore{Life: l.id}
	files := slices.Clone(f.Files)
	if l.k.info.Shares {
		q.Base, q.Writes = f.Image.Base, writes
	}
	if f.Sources != nil {
		q.Sources = true
		files = append(files, f.Sources)
	}
	for _, b := range f.Bases {
		q.Bases = append(q.Bases, b.ID)
		files = append(files, b.Pages)
	}
	return l.k.call(ctx, keeperapi.MethodRestore, q, files, nil)
}

// save has a life write its state.
func (l life) save(ctx context.Context, w *image.Writer) error {
	q, files := keeperapi.Save{Life: l.id}, w.Files
	if l.k.info.Shares {
		q.Base, q.Most = w.Base(), image.MaxBases
		files = append(slices.Clone(files), w.Sources)
	}
	return l.k.call(ctx, keeperapi.MethodSave, q, files, nil)
}

// bases are those in whose pages the memory of a sandbox may lie.
func (s *sandbox) bases() []cube.BaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.based)
}

// adoptSaved has a life that runs on use what was just saved of it where that lies now. The
// next time only what changes from here on is saved. That it cannot is no error of the save.
func (e *Engine) adoptSaved(ctx context.Context, s *sandbox, saved *image.Files) {
	l, _, _ := s.current()
	base := saved.Image.Base
	if base == "" || !l.k.info.Shares {
		return
	}
	// What was not saved lies in these. Known first: the answer may be lost, and the pages
	// be adopted.
	bases := saved.Image.Bases
	s.mu.Lock()
	if s.life == l {
		s.based = append([]cube.BaseID{base}, bases...)
	}
	s.mu.Unlock()
	f, err := saved.Reopen() // a sentry takes no pages that could be written to
	if err == nil {
		defer f.Close()
		err = l.k.call(context.WithoutCancel(ctx), keeperapi.MethodAdopt, keeperapi.Adopt{Life: l.id, Base: base, Bases: bases}, []*os.File{f.Pages()}, nil)
	}
	if err != nil {
		e.log.Warn("a sandbox keeps what was saved of it in memory of its own", "sandbox", s.id, "base", base, "error", err)
		return
	}
	e.noteEarly(l, base, true)
}

// adoptPublished is adoptSaved for an image that has a name.
func (e *Engine) adoptPublished(ctx context.Context, s *sandbox, id cube.ImageID) {
	f, err := e.images.OpenImage(id)
	if err != nil {
		e.log.Warn("a sandbox keeps what was saved of it in memory of its own", "sandbox", s.id, "image", id, "error", err)
		return
	}
	defer f.Close()
	e.adoptSaved(ctx, s, f)
}

// goneTime is how long after a life was ended its sentry is gone, also where its keeper was
// killed meanwhile and its answer says only that it knows no such life.
const goneTime = 2 * time.Second

// freeBases frees pages that nobody has memory in any more, now and when what has just been
// ended is surely gone. What is needed even then is freed by the next garbage collection.
func (e *Engine) freeBases() {
	e.freeUnneeded()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
	case e.freeAgain == nil:
		e.freeAgain = time.AfterFunc(goneTime, func() {
			if e.ctx.Err() == nil {
				e.freeUnneeded()
			}
		})
	default: // what an earlier call waited for has been tried a moment ago
		e.freeAgain.Reset(goneTime)
	}
}

func (e *Engine) freeUnneeded() {
	if err := e.images.FreeBases(); err != nil {
		e.log.Warn("pages that nobody needs may be left", "error", err)
	}
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/layer"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/timing"
)

// keep says that the state of a sandbox is in an image, whatever becomes of its life.
// When that is over and it has died, this is told.
func (e *Engine) keep(s *sandbox, yes bool) {
	s.mu.Lock()
	s.kept = yes
	untold := s.untold
	s.untold = nil
	s.mu.Unlock()
	if untold != nil {
		e.died(*untold)
	}
}

// hurry ends what a pause does beyond what it must, until done is called: somebody waits
// for its end.
func (s *sandbox) hurry() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	if s.extra != nil {
		s.extra()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting--
	}
}

// extraStep gives a context that also ends with hurry, and has ended where somebody waits.
func (s *sandbox) extraStep(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra = cancel
	if s.waiting > 0 {
		cancel()
	}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.extra = nil
	}
}

// runs reports whether a life is known to be able to run on.
func (l life) runs() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := l.usage(ctx)
	return err == nil
}

// filesApart adds the files of a frozen life to its image, which is published, apart
// from the memory. Where that cannot be done the memory has them: it is a failure only
// for a pause that is to keep files alone. Those are looked through before the memory
// is dropped.
func (e *Engine) filesApart(ctx context.Context, s *sandbox, l life, im cube.Image, p cube.Pausing) (cube.Image, error) {
	defer timing.Phase(ctx, "files")()
	ctx, done := s.extraStep(ctx)
	defer done()
	var useless error
	out, err := e.images.AddDisk(ctx, im.ID, func(f *os.File) error {
		if err := e.writeLayer(ctx, l, im.Limits, f, !p.FilesOnly); err != nil || !p.FilesOnly {
			return err
		}
		useless = checkLayer(f)
		return useless
	})
	if err == nil && p.FilesOnly {
		out, err = e.images.DropMemory(im.ID)
	}
	if err == nil {
		return out, nil
	}
	if p.FilesOnly && useless == nil {
		return im, fmt.Errorf("files apart from memory: %w", err)
	}
	e.log.Warn("an image has its files in its memory alone", "image", im.ID, "life", l.id, "error", err)
	return im, nil
}

// checkLayer says why a layer could not be put back in place.
func checkLayer(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := layer.Check(f); err != nil {
		return fmt.Errorf("its files could not be put back: %w", err)
	}
	return nil
}

// writeLayer has a life's writable layer written to a file, as a tar with holes.
// optional: it must not take the last of the disk.
func (e *Engine) writeLayer(ctx context.Context, l life, limits cube.Limits, to *os.File, optional bool) error {
	u, err := l.usage(ctx)
	if err != nil {
		return err
	}
	b := boundsOf(u.GuestFiles, limits)
	if optional {
		if b.spare, err = spareOf(to); err != nil {
			return err
		}
	}
	promised, err := e.reserveLayer(u.GuestFiles)
	if err != nil {
		return err
	}
	defer promised.end()
	r, w, err := pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	asked := make(chan error, 1)
	go func() { // ends with the life, if not before
		defer w.Close()
		asked <- l.call(ctx, keeperapi.MethodFiles, []*os.File{w}, nil)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, b.time, errSlow)
	defer cancel()
	defer cancelRead(ctx, r)()
	copied := copyLayer(ctx, to, r, b)
	r.Close() // a sentry that still writes fails now
	stall := time.NewTimer(layerStall)
	defer stall.Stop()
	select {
	case err = <-asked:
	case <-stall.C:
		return fmt.Errorf("the sentry does not stop writing: %w", os.ErrDeadlineExceeded)
	}
	if errors.Is(err, cube.ErrDead) {
		return err
	}
	return errors.Join(copied, err)
}

// reserveLayer reserves the host's memory for a sentry that writes its layer: it may
// need as much as the largest file in it. A little is always there.
func (e *Engine) reserveLayer(bytes int64) (*promise, error) {
	if bytes <= layerSlack {
		return &promise{a: &e.admission}, nil
	}
	return e.admission.try(e, bytes)
}

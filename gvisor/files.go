package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
	"cubesandbox/internal/timing"
)

// What a layer may be as a tar.
const (
	// layerStall is how long a sentry may write nothing of it.
	layerStall = 60 * time.Second
	// layerSlack is what it may have above twice what the layer takes on disk, in
	// bytes that are not zero. Of a guest's own files it decides how they are stored.
	layerSlack = 64 << 20
	// pipeSize is what the pipe holds, in bytes: the most that the kernel gives anybody.
	pipeSize = 1 << 20
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

// filesApart adds the files of a frozen life, whose memory has been saved, to its
// image, apart from the memory. Where that cannot be done the memory has them: it is a
// failure only for a pause that is to keep files alone, of a life that can run on.
// Where it is the end of the life there is no way back, and the context that the pause
// goes on with does not end.
func (e *Engine) filesApart(ctx context.Context, l life, w *image.Writer, p cube.Pausing) (context.Context, error) {
	defer timing.Phase(ctx, "files")()
	err := e.writeLayer(ctx, l, w.Disk)
	if err == nil && p.FilesOnly {
		return ctx, w.DropMemory()
	}
	if err == nil {
		return ctx, nil
	}
	if errors.Is(err, cube.ErrDead) || errors.Is(err, os.ErrDeadlineExceeded) {
		ctx = context.WithoutCancel(ctx)
	} else if p.FilesOnly {
		return ctx, fmt.Errorf("files apart from memory: %w", err)
	}
	e.log.Warn("an image has its files in its memory alone", "life", l.id, "error", err)
	return ctx, w.Disk.Truncate(0)
}

// writeLayer has a life's writable layer written to a file, as a tar with holes.
func (e *Engine) writeLayer(ctx context.Context, l life, to *os.File) error {
	u, err := l.usage(ctx)
	if err != nil {
		return err
	}
	done, err := e.reserveLayer(u.GuestFiles)
	if err != nil {
		return err
	}
	defer done()
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
	defer cancelRead(ctx, r)()
	copied := copyLayer(ctx, to, r, 2*u.GuestFiles+layerSlack)
	r.Close() // a sentry that still writes fails now
	select {
	case err = <-asked:
	case <-time.After(layerStall):
		return fmt.Errorf("the sentry does not stop writing: %w", os.ErrDeadlineExceeded)
	}
	if errors.Is(err, cube.ErrDead) {
		return err
	}
	return errors.Join(copied, err)
}

// reserveLayer reserves the host's memory for a sentry that writes its layer: it may
// need as much as the largest file in it. A little is always there.
func (e *Engine) reserveLayer(bytes int64) (done func(), err error) {
	if bytes <= layerSlack {
		return func() {}, nil
	}
	return e.admission.try(e, bytes)
}

// cancelRead ends what is being read of a file when ctx ends.
func cancelRead(ctx context.Context, r *os.File) (stop func() bool) {
	return context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })
}

// pipe gives a pipe whose writing end blocks and whose reading end has deadlines.
func pipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize) // smaller is slower, and does
	w = os.NewFile(uintptr(fds[1]), "pipe")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		w.Close()
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), w, nil
}

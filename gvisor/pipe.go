package gvisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipeSize is what the pipe holds, in bytes: the most that the kernel gives anybody.
const pipeSize = 1 << 20

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

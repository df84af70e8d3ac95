package serve

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startTicks is when a process began, in ticks since boot: field 22 of its stat
// (proc(5)).
func startTicks(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may contain anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	return strconv.ParseInt(f[19], 10, 64)
}

// bootID names this run of the machine; empty where the kernel does not say.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Stop asks the server of a run directory to stop, and waits until it has. It
// reports whether one ran. Sandboxes run on.
func Stop(ctx context.Context, runDir string) (ran bool, err error) {
	s, ok, err := Running(runDir)
	if err != nil || !ok {
		return false, err
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return false, nil // it has just ended
	}
	defer unix.Close(fd)
	if !s.lives() { // the number may have gone to another in between
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return false, fmt.Errorf("stop the server, process %d: %w", s.PID, err)
	}
	return true, waitEnd(ctx, fd, s.PID)
}

// waitEnd waits until the process of a pidfd has ended.
func waitEnd(ctx context.Context, fd, pid int) error {
	for ctx.Err() == nil {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 100)
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return err
		}
	}
	return fmt.Errorf("the server, process %d, does not end: %w", pid, ctx.Err())
}

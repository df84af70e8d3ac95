package serve

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which is 100 on every architecture that we build for.
const ticksPerSecond = 100

// processStart is when a process began, from proc(5): field 22 of stat, in ticks
// since boot.
func processStart(pid int) (time.Time, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The name, in parentheses, may contain anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	ticks, err := strconv.ParseInt(f[19], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	up, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(up))[0], 64)
	if err != nil {
		return time.Time{}, err
	}
	age := time.Duration(seconds*float64(time.Second)) - time.Duration(ticks)*time.Second/ticksPerSecond
	return time.Now().Add(-age), nil
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

package sentry

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openProcess returns a pidfd of the process that started at the given tick; any
// process, when that is 0. It fails with errEnded if that one is no more.
func openProcess(pid int, start uint64) (*os.File, procStat, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, procStat{}, errEnded
	}
	if err != nil {
		return nil, procStat{}, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Looked at after the pidfd was opened: while it lives, this is what that names.
	st, err := readStat(pid)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH), err == nil && start != 0 && st.start != start:
		err = errEnded
	case err == nil:
		return f, st, nil
	}
	f.Close()
	return nil, procStat{}, err
}

// signalProcess sends a signal by a pidfd, and to nobody else when that is closed
// meanwhile and its number used again.
func signalProcess(pidfd *os.File, sig unix.Signal) error {
	return withFD(pidfd, func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// waitReadable waits without a thread of its own until a pidfd says that its
// process has ended. It fails when that is closed or its deadline passes.
func waitReadable(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// withFD calls f with a descriptor that stays the file's until it returns.
func withFD(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = f(int(fd)) })
	return errors.Join(err, ferr)
}

// reap takes the status of a child that has ended or is about to.
func reap(pid int) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return ws, err
		}
	}
}

package asuser

import (
	"context"
	"fmt"

	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// OpenPTY opens a new terminal of a user and returns its two ends. Whatever
// root among the users has put in place of the device is refused.
func (r *Runner) OpenPTY(ctx context.Context, name string) (master, slave int, err error) {
	err = r.Do(ctx, name, func(users.User) error {
		master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a terminal: %w", err)
		}
		if slave, err = peer(master); err != nil {
			unix.Close(master)
			return fmt.Errorf("open a terminal: %w", err)
		}
		return nil
	})
	if err != nil {
		return -1, -1, err
	}
	return master, slave, nil
}

// peer unlocks and opens the other end of a terminal; only a terminal has one.
func peer(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock: %w", err)
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	slave, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if e != 0 {
		return -1, fmt.Errorf("other end: %w", e)
	}
	return int(slave), nil
}

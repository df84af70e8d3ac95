package service

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// identity tells two sockets apart, whichever duplicate is looked at.
type identity struct{ dev, ino uint64 }

func identify(f *os.File) (identity, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return identity{}, err
	}
	var st unix.Stat_t
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = unix.Fstat(int(fd), &st) }); err != nil {
		return identity{}, err
	}
	if serr != nil {
		return identity{}, fmt.Errorf("fstat: %w", serr)
	}
	return identity{uint64(st.Dev), st.Ino}, nil
}

// give returns a duplicate for an answer, which closes it.
func give(f *os.File) (any, []*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	fd, derr := -1, error(nil)
	if err := raw.Control(func(n uintptr) { fd, derr = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, nil, err
	}
	if derr != nil {
		return nil, nil, fmt.Errorf("duplicate: %w", derr)
	}
	return nil, []*os.File{os.NewFile(uintptr(fd), f.Name())}, nil
}

package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// directory is one that is open because entries of it are being unpacked.
type directory struct {
	name string
	fd   int
	// head is what it is to become when all below it is in place, or nil: its time
	// changes with each entry, and its default ACL would be given to them.
	head *tar.Header
}

// here is the directory that was entered last.
func (u *unpacker) here() int { return u.open[len(u.open)-1].fd }

// walk makes the directory at a path the one that is here. An overlay's tar goes
// through a tree depth first, so most of the way is open already.
func (u *unpacker) walk(path []string) error {
	same := 0
	for same < len(path) && same+1 < len(u.open) && u.open[same+1].name == path[same] {
		same++
	}
	if err := u.leave(same + 1); err != nil {
		return err
	}
	for _, name := range path[same:] {
		fd, err := openDirectory(u.here(), name)
		if err != nil {
			return fmt.Errorf("open directory %s: %w", shown(name), err)
		}
		u.open = append(u.open, directory{name: name, fd: fd})
	}
	return nil
}

// directory makes a directory in the one that is here, and goes into it.
func (u *unpacker) directory(name string, h *tar.Header) error {
	at := u.here()
	err := unix.Mkdirat(at, name, 0o700)
	if err != nil && err != unix.EEXIST {
		return fmt.Errorf("make: %w", err)
	}
	fd, err := openDirectory(at, name)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		if _, err := remove(at, name); err != nil {
			return err
		}
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			return fmt.Errorf("make: %w", err)
		}
		fd, err = openDirectory(at, name)
	}
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	u.open = append(u.open, directory{name: name, fd: fd, head: h})
	if h.PAXRecords[xattrPrefix+opaque] == "y" {
		return empty(fd)
	}
	return nil
}

func openDirectory(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// leave closes all directories but the first n, the innermost first, and gives them
// what they were to become.
func (u *unpacker) leave(n int) error {
	var errs error
	for len(u.open) > n {
		d := u.open[len(u.open)-1]
		u.open = u.open[:len(u.open)-1]
		if d.head != nil {
			if err := u.finish(d); err != nil {
				errs = errors.Join(errs, fmt.Errorf("unpack %s: %w", shown(d.head.Name), err))
			}
		}
		unix.Close(d.fd)
	}
	return errs
}

func (u *unpacker) finish(d directory) error {
	if err := unix.Fchown(d.fd, d.head.Uid, d.head.Gid); err != nil {
		return fmt.Errorf("set the owner: %w", err)
	}
	if err := unix.Fchmod(d.fd, mode(d.head)); err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	if err := u.xattrs(d.head, func(name string, value []byte) error { return unix.Fsetxattr(d.fd, name, value, 0) }); err != nil {
		return err
	}
	return setTime(d.fd, "", d.head.ModTime)
}

// setTime sets when a file was changed last; name is below at, or empty for at itself.
func setTime(at int, name string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return nil // no file can have it
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, ts}
	if name == "" {
		err = futimens(at, &times[0])
	} else {
		err = unix.UtimesNanoAt(at, name, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("set the time: %w", err)
	}
	return nil
}

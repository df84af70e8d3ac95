package layer

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// absent sees to it that nothing has a name.
func absent(at int, name string) error {
	_, err := remove(at, name)
	return err
}

// remove removes what has a name, with all that is below it, and reports whether
// something went. What is not there is fine; so is what something is mounted on, for
// it cannot have been removed in the life that wrote the tar either.
func remove(at int, name string) (bool, error) {
	err := unix.Unlinkat(at, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return removed(err)
	}
	fd, err := openDirectory(at, name)
	if err != nil {
		return removed(err)
	}
	err = empty(fd)
	unix.Close(fd)
	if err != nil {
		return false, err
	}
	return removed(unix.Unlinkat(at, name, unix.AT_REMOVEDIR))
}

func removed(err error) (bool, error) {
	switch err {
	case nil:
		return true, nil
	case unix.ENOENT, unix.EBUSY, unix.ENOTEMPTY: // the last is the directory of what is busy
		return false, nil
	}
	return false, fmt.Errorf("remove what was there: %w", err)
}

// batch is how many names of a directory are read at once.
const batch = 1024

// empty removes all that is in a directory. Removing moves what comes next, so it
// goes through until nothing more goes.
func empty(at int) error {
	fd, err := openDirectory(at, ".")
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	for {
		some, err := removeListed(at, f)
		if err != nil || !some {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("list: %w", err)
		}
	}
}

// removeListed removes what is read of a directory until its end.
func removeListed(at int, f *os.File) (some bool, err error) {
	for {
		names, err := f.Readdirnames(batch)
		if err != nil && err != io.EOF {
			return some, fmt.Errorf("list: %w", err)
		}
		if len(names) == 0 {
			return some, nil
		}
		for _, name := range names {
			gone, err := remove(at, name)
			if err != nil {
				return some, err
			}
			some = some || gone
		}
	}
}

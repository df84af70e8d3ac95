package agent

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hooksDir is where the hooks are.
const hooksDir = "/etc/cube/after-restore.d"

const (
	// maxHooks bounds how many are run.
	maxHooks = 32
	// maxEntries bounds what is looked at in a directory that users fill.
	maxEntries = 256
)

// find returns the names of the hooks in their order, and why other files are none.
func (h *hooks) find() (names, ignored []string) {
	var st unix.Stat_t
	if unix.Lstat(path.Join(h.root, hooksDir), &st) != nil {
		return nil, nil // the usual case, and all that it costs
	}
	dir, err := h.open()
	if err != nil {
		return nil, []string{err.Error()}
	}
	defer dir.Close()
	all, err := dir.Readdirnames(maxEntries + 1)
	if len(all) > maxEntries {
		return nil, []string{fmt.Sprintf("any file, for there are more than %d: remove some", maxEntries)}
	}
	if len(all) == 0 && err != nil {
		return nil, nil // an empty one is io.EOF
	}
	slices.Sort(all)
	for _, name := range all {
		why := h.check(int(dir.Fd()), name)
		if why == "" && len(names) == maxHooks {
			why = fmt.Sprintf("there are %d before it, which is the most", maxHooks)
		}
		if why != "" {
			ignored = append(ignored, fmt.Sprintf("%s: %s", strconv.QuoteToASCII(name[:min(len(name), 100)]), why))
			continue
		}
		names = append(names, name)
	}
	return names, ignored
}

// open opens the directory. None on the way to it may be a link or changed by
// anybody but root: whoever could put a file there would become root.
func (h *hooks) open() (*os.File, error) {
	fd, err := unix.Open(h.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	at := ""
	for part := range strings.SplitSeq(hooksDir[1:], "/") {
		if err != nil {
			break
		}
		at += "/" + part
		above := fd
		fd, err = unix.Openat(above, part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(above)
		if err == nil {
			var st unix.Stat_t
			if err = unix.Fstat(fd, &st); err == nil {
				err = h.trusted(&st)
			}
			if err != nil {
				unix.Close(fd)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("any file: %s: %w", at, err)
	}
	return os.NewFile(uintptr(fd), hooksDir), nil
}

// trusted says why root should not run what is in a file or directory.
func (h *hooks) trusted(st *unix.Stat_t) error {
	switch {
	case st.Uid != h.owner:
		return errors.New("root does not own it")
	case st.Mode&0o022 != 0:
		return errors.New("others than root may write to it")
	}
	return nil
}

// check says why a file is no hook; empty when it is one.
func (h *hooks) check(dir int, name string) string {
	if !hookName(name) {
		return "its name has other characters than A-Z a-z 0-9 _ . - or begins with a dot"
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err.Error()
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "it is not a regular file"
	}
	if err := h.trusted(&st); err != nil {
		return err.Error()
	}
	if st.Mode&0o100 == 0 {
		return "root may not execute it"
	}
	return ""
}

func hookName(name string) bool {
	return name[0] != '.' && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c))
	})
}

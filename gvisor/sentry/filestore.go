package sentry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// fileID names a file for as long as somebody has it open.
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

func identify(fi fs.FileInfo) fileID {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() {
		return fileID{}
	}
	return fileID{uint64(st.Dev), st.Ino}
}

// idOf returns the zero fileID where it cannot be told.
func idOf(f *os.File) fileID {
	fi, err := f.Stat()
	if err != nil {
		return fileID{}
	}
	return identify(fi)
}

// maxDescriptors bounds a search among the descriptors of a sentry.
const maxDescriptors = 65536

// findFile opens a file without a name among what a process has open.
func findFile(pid int, want fileID) (*os.File, error) {
	if want == (fileID{}) {
		return nil, errors.New("it was not recorded")
	}
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for seen := 0; seen < maxDescriptors; {
		names, err := dir.Readdirnames(1024)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		seen += len(names)
		for _, n := range names {
			path := dir.Name() + "/" + n
			if fi, err := os.Stat(path); err != nil || identify(fi) != want {
				continue
			}
			// The process may have put another file there: do not wait for that one.
			f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				return nil, err
			}
			if idOf(f) == want {
				return f, nil
			}
			f.Close()
		}
	}
	return nil, fmt.Errorf("process %d does not have it open", pid)
}

// allocated is the space that a file takes, in bytes.
func allocated(f *os.File) int64 {
	fi, err := f.Stat()
	if err != nil {
		return 0
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return 0
}

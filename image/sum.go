package image

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"

	cube "cubesandbox"
)

// region is how much one checksum covers, in bytes.
const region = 1 << 20

// fileSum is the length of a file and the CRC-32C (Castagnoli) of each region,
// with the identity that it had when they were found to be right.
type fileSum struct {
	Name     string   `json:"name"`
	Size     int64    `json:"size"`
	CRC      []uint32 `json:"crc32c"`
	Identity identity `json:"identity"`
}

// identity changes with everything that can change a file's content, short of
// writing to the device behind its file system. Times are in ns since 1970.
type identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	Mtime  int64  `json:"mtime"`
	Ctime  int64  `json:"ctime"`
}

func identityOf(f *os.File) (identity, error) {
	fi, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	st := fi.Sys().(*syscall.Stat_t)
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}

// check compares a file with what was saved. It is read only when its identity is
// not one that was verified.
func (s *Store) check(id cube.ImageID, f *os.File, want fileSum) error {
	corrupt := func(format string, args ...any) error {
		return &cube.CorruptError{Image: id, File: want.Name, Detail: fmt.Sprintf(format, args...)}
	}
	now, err := identityOf(f)
	if err != nil {
		return err
	}
	if now.Size != want.Size {
		return corrupt("it has %d bytes, %d were saved", now.Size, want.Size)
	}
	if now == want.Identity {
		return nil
	}
	if _, ok := s.verified.Load(now); ok {
		return nil
	}
	got, err := sum(f)
	if err != nil {
		return corrupt("it cannot be read: %v", err)
	}
	for i := range want.CRC {
		if i >= len(got.CRC) || got.CRC[i] != want.CRC[i] {
			return corrupt("its content differs from what was saved between bytes %d and %d", i*region, min(int64(i+1)*region, want.Size))
		}
	}
	s.verified.Store(now, struct{}{})
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum reads the whole file, on all processors.
func sum(f *os.File) (fileSum, error) {
	fi, err := f.Stat()
	if err != nil {
		return fileSum{}, err
	}
	s := fileSum{Size: fi.Size(), CRC: make([]uint32, (fi.Size()+region-1)/region)}
	n := min(runtime.NumCPU(), len(s.CRC))
	errs := make([]error, n)
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			buf := make([]byte, region)
			for i := w; i < len(s.CRC); i += n {
				k, err := f.ReadAt(buf[:min(region, s.Size-int64(i)*region)], int64(i)*region)
				if err != nil && err != io.EOF {
					errs[w] = err
					return
				}
				s.CRC[i] = crc32.Checksum(buf[:k], castagnoli)
			}
		})
	}
	wg.Wait()
	return s, errors.Join(errs...)
}

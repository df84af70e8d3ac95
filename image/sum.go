package image

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
)

// region is how much one checksum covers, in bytes.
const region = 1 << 20

func regions(size int64) int64 { return (size + region - 1) / region }

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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum reads the whole file, with as many readers at once; 0: one for each processor.
func sum(ctx context.Context, f *os.File, readers int) (fileSum, error) {
	fi, err := f.Stat()
	if err != nil {
		return fileSum{}, err
	}
	s := fileSum{Size: fi.Size(), CRC: make([]uint32, regions(fi.Size()))}
	if readers == 0 {
		readers = runtime.NumCPU()
	}
	n := min(readers, len(s.CRC))
	errs := make([]error, n)
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			buf := make([]byte, region)
			for i := w; i < len(s.CRC); i += n {
				if errs[w] = ctx.Err(); errs[w] != nil {
					return
				}
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

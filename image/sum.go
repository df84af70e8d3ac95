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

	"golang.org/x/sys/unix"
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
	return identityIn(fi), nil
}

func identityIn(fi os.FileInfo) identity {
	st := fi.Sys().(*syscall.Stat_t)
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcOfZeros is that of a region that is a hole.
var crcOfZeros = crc32.Checksum(make([]byte, region), castagnoli)

// sum reads a file whole, but for its holes, with as many readers at once; 0: one for
// each processor.
func sum(ctx context.Context, f *os.File, readers int) (fileSum, error) {
	fi, err := f.Stat()
	if err != nil {
		return fileSum{}, err
	}
	s := fileSum{Size: fi.Size(), CRC: make([]uint32, regions(fi.Size()))}
	for i := range s.CRC {
		s.CRC[i] = crcOfZeros
	}
	if last := s.Size % region; last > 0 {
		s.CRC[len(s.CRC)-1] = crc32.Checksum(make([]byte, last), castagnoli)
	}
	data, err := dataRegions(ctx, f, s.Size)
	if err != nil {
		return fileSum{}, err
	}
	if readers == 0 {
		readers = runtime.NumCPU()
	}
	n := min(readers, len(data))
	errs := make([]error, n)
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			buf := make([]byte, region)
			for j := w; j < len(data); j += n {
				if errs[w] = ctx.Err(); errs[w] != nil {
					return
				}
				i := data[j]
				k, err := f.ReadAt(buf[:min(region, s.Size-i*region)], i*region)
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

// dataRegions are the numbers of the regions that are not all hole. A sandbox can make
// holes of many gigabytes for nothing: they are not read. Where the file is read next
// stays as it was.
func dataRegions(ctx context.Context, f *os.File, size int64) (_ []int64, err error) {
	was, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, serr := f.Seek(was, io.SeekStart)
		err = errors.Join(err, serr)
	}()
	var out []int64
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			break // holes to the end
		}
		if err != nil {
			return nil, err
		}
		out = append(out, data/region)
		at = (data/region + 1) * region
	}
	return out, nil
}

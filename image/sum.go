package image

import (
	"errors"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"
)

// region is how much one checksum covers, in bytes.
const region = 1 << 20

// fileSum is the length of a file and the CRC-32C (Castagnoli) of each region.
type fileSum struct {
	Name string   `json:"name"`
	Size int64    `json:"size"`
	CRC  []uint32 `json:"crc32c"`
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

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// What a layer may be as a tar.
const (
	// layerStall is how long a sentry may write nothing of it.
	layerStall = 60 * time.Second
	// layerSlack is what it may have beyond everything else, in bytes. Of a guest's own
	// files it decides how they are stored.
	layerSlack = 64 << 20
	// layerRate is how fast it must come, in bytes/s of what it takes on disk.
	layerRate = 20 << 20
	// entryMemory is what an entry takes of a sentry's memory at least, and entryTar
	// what it takes of the tar without its content, both in bytes. Longer names and
	// attributes take of both.
	entryMemory = 256
	entryTar    = 2 << 10
	// mostEntries is how many can be put back.
	mostEntries = 4 << 20
)

var errSlow = errors.New("the writable layer does not come fast enough; it may have large holes")

// layerBounds are what a guest can make of the disk and of the time of a pause.
type layerBounds struct {
	data   int64         // bytes that are written
	length int64         // bytes of the tar, with its holes
	spare  int64         // bytes that must stay free on disk
	time   time.Duration // until it is there
}

// boundsOf are what no honest layer exceeds that takes so many bytes on disk: a page of
// a file may be in two blocks of the tar, and each entry has headers, for which it
// must have had memory. Holes are bounded by how large the disk is.
func boundsOf(allocated int64, l cube.Limits) layerBounds {
	entries := min(mostEntries, l.MemoryMiB<<20/entryMemory)
	data := 2*allocated + entries*entryTar + layerSlack
	return layerBounds{
		data: data, length: l.DiskMiB<<20 + data,
		time: layerStall + time.Duration(allocated/layerRate)*time.Second,
	}
}

// spareOf is what must stay free where a file is, for whatever must be written: 64 MiB,
// or 1 % of the disk where that is more.
func spareOf(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("free space: %w", err)
	}
	return max(64<<20, int64(st.Blocks)*st.Bsize/100), nil
}

// roomFor finds out whether so many bytes can be written to a file and still as many
// stay free as must.
func roomFor(f *os.File, bytes, spare int64) error {
	if spare == 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("free space: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free-bytes < spare {
		return fmt.Errorf("%w: of the %d MiB that are free %d stay for what must be written", cube.ErrNoSpace, free>>20, spare>>20)
	}
	return nil
}

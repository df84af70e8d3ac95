package image

import (
	"io/fs"
	"sync"
	"syscall"

	cube "cubesandbox"
)

// verdict says of a file, as it was at a moment, whether it was right.
type verdict struct {
	identity identity
	right    bool
}

// verdicts are what this process has found. A key stands for one file at a time: an
// inode, or the digest of a file system, of which it also is what it was compared with.
type verdicts[K comparable] struct {
	m sync.Map // K → verdict
}

func (v *verdicts[K]) keep(k K, found verdict) { v.m.Store(k, found) }

func (v *verdicts[K]) forget(k K) { v.m.Delete(k) }

// of returns what was found of a file if it is still as it was then.
func (v *verdicts[K]) of(k K, now identity) (right, known bool) {
	found, ok := v.m.Load(k)
	if !ok || found.(verdict).identity != now {
		return false, false
	}
	return found.(verdict).right, true
}

// inode names a file for as long as it exists.
type inode struct{ device, number uint64 }

func inodeOf(fi fs.FileInfo) inode {
	st := fi.Sys().(*syscall.Stat_t)
	return inode{uint64(st.Dev), st.Ino}
}

func (id identity) inode() inode { return inode{id.Device, id.Inode} }

// place is an image in a directory: another of the same id has another directory, and
// another in the same directory another id.
type place struct {
	id        cube.ImageID
	directory inode
}

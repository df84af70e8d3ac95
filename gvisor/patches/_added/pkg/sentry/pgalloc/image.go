// Copyright 2026 The Cube Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package pgalloc

import (
	"fmt"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// An Image is the pages file of a checkpoint, of which sandboxes use the pages in place. All
// of them that were restored from it map the same host file, and so share its pages in the
// host's page cache. Nobody ever writes to it.
//
// As a memmap.File it can only be mapped, for reading and executing. References to it are not
// counted: see Images.ReleaseUnused.
type Image struct {
	memmap.DefaultMemoryType
	memmap.NoBufferedIOFallback

	// All fields are immutable.
	id   string
	fd   int
	data []byte
}

var _ memmap.File = (*Image)(nil)

// NewImage makes an Image of a host file, whose descriptor it takes ownership of even if it
// returns an error. id is by what checkpoints name it.
//
// It must be called before seccomp filters are installed, or in a sentry that has none
// against what it does: it may not map a file as executable to find out whether it could.
func NewImage(id string, fd int) (*Image, error) {
	im, err := newImage(id, fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("image %q: %w", id, err)
	}
	return im, nil
}

func newImage(id string, fd int) (*Image, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		// With such a descriptor the host refuses mappings that could be written to.
		return nil, fmt.Errorf("it is not opened for reading only")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	// Applications execute private memory. Where that could not be mapped, say so now and
	// not in a page fault.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, err
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return nil, fmt.Errorf("it is on a file system that is mounted noexec")
	}
	im := &Image{id: id, fd: fd}
	if st.Size != 0 {
		if im.data, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return nil, err
		}
		addMapped(im)
	}
	return im, nil
}

// ID returns by what checkpoints name im.
func (im *Image) ID() string { return im.id }

// Size returns how long im is, in bytes.
func (im *Image) Size() uint64 { return uint64(len(im.data)) }

// IncRef implements memmap.File.IncRef.
func (im *Image) IncRef(memmap.FileRange, uint32) {}

// DecRef implements memmap.File.DecRef.
func (im *Image) DecRef(memmap.FileRange) {}

// MapInternal implements memmap.File.MapInternal.
func (im *Image) MapInternal(fr memmap.FileRange, at hostarch.AccessType) (safemem.BlockSeq, error) {
	if at.Write || at.Execute {
		return safemem.BlockSeq{}, linuxerr.EACCES
	}
	if fr.End > im.Size() {
		return safemem.BlockSeq{}, linuxerr.EFAULT
	}
	return safemem.BlockSeqOf(im.block(fr)), nil
}

// block returns the mapping of fr. What reads it has to expect SIGBUS: the host may fail to
// read the file, or it was truncated.
//
// Preconditions: fr.End <= im.Size().
func (im *Image) block(fr memmap.FileRange) safemem.Block {
	return safemem.BlockFromUnsafeSlice(im.data[fr.Start:fr.End:fr.End])
}

// DataFD implements memmap.File.DataFD.
func (im *Image) DataFD(memmap.FileRange) (int, error) { return im.fd, nil }

// FD implements memmap.File.FD.
func (im *Image) FD() int { return im.fd }

// String implements fmt.Stringer.
func (im *Image) String() string { return fmt.Sprintf("Image(%s)", im.id) }

// Release gives back what im takes of the host.
//
// Preconditions: No page lies in im.
func (im *Image) Release() {
	if im.data != nil {
		removeMapped(im)
		unix.Munmap(im.data)
	}
	unix.Close(im.fd)
}

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
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sync"
)

// Imaged pages
//
// A page of a MemoryFile is *imaged* if its bytes are those of a page of an Image, the pages
// file of a checkpoint. It is read where it lies in the Image: by the sentry through the
// Image's mapping, by the application through a mapping of the Image's host file. So nothing
// is copied at a restore, and all sandboxes of one checkpoint share its pages. The page keeps
// its place in the MemoryFile, its references and its accounting; in the MemoryFile's host
// file it is a hole, unless it is *resident*: then the bytes are there too.
//
// The MemoryFile is the only authority. Whoever is to write to a page makes it an ordinary
// one first, by Unshare, and takes care that nobody uses a mapping of the Image any more.
// MapInternal with hostarch.Write and DataFD do the former by themselves, so code that does
// not know of images is right, if slow.
//
//   - Private memory: pmas over imaged pages need copy-on-write (mm.MemoryManager.MarkImaged).
//     A write breaks it by Unshare where the pma is the only user of the page, as it takes
//     ownership of other pages; nothing is allocated and the pma's offset stays.
//   - Files: see tmpfs.regularFile.Translate.
//   - Everything else has a Mappable whose Translate permits writing, and is unshared when it
//     is mapped.
//
// A checkpoint does not save imaged pages. It notes in a table, apart from the pages file,
// which page of which Image each of them is (image_table.go).
//
// All pages that are imaged are known to be committed (memAcctInfo.knownCommitted): what was
// saved was.

// Bounds of into how many pieces the imaged pages of a MemoryFile may fall. Each is a mapping
// in the host, and so are the pages between two; a process has vm.max_map_count of them
// (65530) at most.
const (
	// maxImagedRanges is how many there may be after loading: the shortest beyond it are
	// loaded.
	maxImagedRanges = 8192

	// fewRanges and manyRanges are from how many on more is unshared at once than a write
	// needs, and as much as can be. See UnshareUnit.
	fewRanges  = 4096
	manyRanges = 8192
)

// minUnshare, someUnshare and maxUnshare are how many bytes around a write cease to be imaged
// at least where there are few pieces, more, and many. They are powers of two.
const (
	minUnshare  = 32 << 10
	someUnshare = 256 << 10
	maxUnshare  = hostarch.HugePageSize
)

// An ImagedUser has mappings of imaged pages.
type ImagedUser interface {
	// MarkImaged has it notice writes to imaged pages from now on.
	//
	// Preconditions: Nothing accesses memory through it meanwhile.
	MarkImaged(why ImagedReason)
}

// An ImagedReason is why pages are imaged that were not so far.
type ImagedReason int

const (
	// ImagedByLoad: they were just loaded. Nothing is mapped yet.
	ImagedByLoad ImagedReason = iota

	// ImagedBySave: they were just saved, and are resident. Mappings may be kept that nobody
	// writes through.
	ImagedBySave

	// ImagedByAdopt: they were saved, and will cease to be resident. No mapping may be kept.
	ImagedByAdopt
)

// imagedPages is the part of a MemoryFile that is about imaged pages.
type imagedPages struct {
	// mu is a leaf: MemoryFile.mu may be held when it is taken.
	mu sync.Mutex

	// set is protected by mu.
	set imagedSet

	// lastUnshared is where the last unit ended, lastUnit how large it was. Both are protected
	// by mu.
	lastUnshared, lastUnit uint64

	// folded is true once pages were unshared to be saved once more. If that save has failed,
	// private memory may be mapped from the Image where none is imaged any more. It is
	// protected by mu.
	folded bool

	// former is where pages lay that were unshared, and is protected by mu.
	former []imagedRange

	// early is protected by mu.
	early earlyWrites

	// images is what pages may lie in. It is immutable once it is set.
	images *Images

	// loading is what LoadFrom gathers.
	loading []imagedRange

	// users are all that MarkImaged is to be called of, protected by usersMu.
	usersMu sync.Mutex
	users   map[ImagedUser]struct{}
}

// AddImagedUser has MarkImaged be called of user.
func (f *MemoryFile) AddImagedUser(user ImagedUser) {
	f.imaged.usersMu.Lock()
	defer f.imaged.usersMu.Unlock()
	if f.imaged.users == nil {
		f.imaged.users = make(map[ImagedUser]struct{})
	}
	f.imaged.users[user] = struct{}{}
}

// RemoveImagedUser ends what AddImagedUser began.
func (f *MemoryFile) RemoveImagedUser(user ImagedUser) {
	f.imaged.usersMu.Lock()
	defer f.imaged.usersMu.Unlock()
	delete(f.imaged.users, user)
}

// MarkImaged calls MarkImaged of all users of f.
//
// Preconditions: The kernel is paused, or not yet started.
func (f *MemoryFile) MarkImaged(why ImagedReason) {
	if why == ImagedByLoad {
		f.closeEarly()
	}
	f.imaged.usersMu.Lock()
	users := slices.Collect(maps.Keys(f.imaged.users))
	f.imaged.usersMu.Unlock()
	for _, user := range users {
		user.MarkImaged(why)
	}
}

// Folded returns true if pages may be mapped from an Image that are not imaged any more, though
// nobody has written to them.
func (f *MemoryFile) Folded() bool {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	return f.imaged.folded
}

// HasImaged returns true if a page of f is imaged. If it returns false, no page becomes so
// but by loading f and by AdoptImage.
func (f *MemoryFile) HasImaged() bool { return f.hasImaged.Load() }

// absentBytes returns how many bytes of imaged pages are not in f's host file.
func (f *MemoryFile) absentBytes() uint64 {
	if !f.HasImaged() {
		return 0
	}
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	return f.imaged.set.absent
}

// forgetImaged makes the pages in fr ordinary ones whose bytes nobody needs any more. Those
// of them that were not resident are zeroes then.
func (f *MemoryFile) forgetImaged(fr memmap.FileRange) {
	if !f.HasImaged() {
		return
	}
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	f.imaged.set.remove(fr)
}

// Unshare makes the pages in fr ordinary ones of f, with the bytes that they have. It fails
// if these cannot be read from their Image.
//
// Mappings of the Image stay as they are: they have the right bytes until the first write.
//
// Preconditions: At least one reference is held on all pages in fr.
func (f *MemoryFile) Unshare(fr memmap.FileRange) error {
	if !f.HasImaged() {
		return nil
	}
	fr.Start = hostarch.PageRoundDown(fr.Start)
	fr.End = hostarch.MustPageRoundUp(fr.End)
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	return f.unshareLocked(fr)
}

// Preconditions: f.imaged.mu is locked.
func (f *MemoryFile) unshareLocked(fr memmap.FileRange) error {
	done := fr.Start
	err := f.imaged.set.visit(fr, func(r imagedRange) error {
		if !r.resident {
			if err := f.copyFromImage(r); err != nil {
				log.Warningf("MemoryFile(%p): pages %v cannot be read from %v: %v", f, r.FileRange, r.image, err)
				return err
			}
		}
		done = r.End
		f.imaged.noteFormer(r)
		return nil
	})
	if err == nil {
		done = fr.End
	}
	if done != fr.Start {
		f.imaged.set.remove(memmap.FileRange{Start: fr.Start, End: done})
	}
	return err
}

// copyFromImage writes the bytes of r to f's host file. A system call for all of them is much
// cheaper than a page fault for each of them on both sides.
func (f *MemoryFile) copyFromImage(r imagedRange) error {
	if r.off+r.Length() > r.image.Size() {
		return fmt.Errorf("it is only %d bytes long", r.image.Size())
	}
	src := r.image.data[r.off : r.off+r.Length()]
	dst := int64(r.Start)
	for len(src) != 0 {
		n, err := unix.Pwrite(f.FD(), src, dst)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EFAULT {
			r.image.fail(r.off + r.Length() - uint64(len(src)))
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.EIO
		}
		src = src[n:]
		dst += int64(n)
	}
	return nil
}

// UnshareUnit returns the range around fr, in optional, that a write to fr should unshare:
// little if writes are scattered, twice as much each time while they go on where the last
// one ended. The more pieces there are, the more is unshared at once, and in the end whole
// huge pages: each of these adds one piece at most, for good, so that the number of pieces
// stays bounded however often, and over however many checkpoints, writes are scattered.
//
// Preconditions: optional.IsSupersetOf(fr). Both are page-aligned.
func (f *MemoryFile) UnshareUnit(fr, optional memmap.FileRange) memmap.FileRange {
	p := &f.imaged
	p.mu.Lock()
	defer p.mu.Unlock()
	unit := uint64(minUnshare)
	if n := len(p.set.ranges); n > manyRanges {
		unit = maxUnshare
	} else if n > fewRanges {
		unit = someUnshare
	}
	if fr.Start == p.lastUnshared {
		unit = max(unit, min(2*p.lastUnit, maxUnshare))
	}
	u := memmap.FileRange{Start: fr.Start &^ (unit - 1), End: fr.End}
	if end := (fr.End + unit - 1) &^ (unit - 1); end >= fr.End {
		u.End = end
	}
	u = u.Intersect(optional)
	p.lastUnshared, p.lastUnit = u.End, unit
	p.noteEarly(u)
	return u
}

// FirstImaged returns the first part of fr that is imaged, as long as possible.
func (f *MemoryFile) FirstImaged(fr memmap.FileRange) (memmap.FileRange, bool) {
	if !f.HasImaged() {
		return memmap.FileRange{}, false
	}
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	s := &f.imaged.set
	i := s.at(fr.Start)
	if i == len(s.ranges) || s.ranges[i].Start >= fr.End {
		return memmap.FileRange{}, false
	}
	out := s.ranges[i].FileRange
	for i++; i < len(s.ranges) && s.ranges[i].Start == out.End && out.End < fr.End; i++ {
		out.End = s.ranges[i].End
	}
	return out.Intersect(fr), true
}

// OrdinaryAround returns the longest range around fr, in optional, in which no page is imaged.
//
// Preconditions: optional.IsSupersetOf(fr). No page in fr is imaged.
func (f *MemoryFile) OrdinaryAround(fr, optional memmap.FileRange) memmap.FileRange {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	s := &f.imaged.set
	i := s.at(fr.Start)
	if i > 0 {
		optional.Start = max(optional.Start, s.ranges[i-1].End)
	}
	if i < len(s.ranges) {
		optional.End = min(optional.End, s.ranges[i].Start)
	}
	return optional
}

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
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/gohacks"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Early writes
//
// Copies of a checkpoint that wake up write to much the same pages, and each first write to an
// imaged page is a page fault. So what one of them unshares for writes to private memory, in
// the first seconds of its life, is noted, or what the sandbox itself does that was saved and
// has adopted its pages; another that is told of it unshares the same while
// its kernel is still being loaded, and its applications own those pages from the beginning.
//
// It is advice: whatever it says, only pages that are imaged become ordinary ones, and only
// before anything can have mapped them.

const (
	// earlyTime is how long after a restore writes are early.
	earlyTime = 2 * time.Second

	// maxEarlyWrites and maxEarlyBytes bound what is noted, and what is done about it.
	maxEarlyWrites = 1024
	maxEarlyBytes  = 16 << 20
)

// earlyWrites is the part of imagedPages that is about early writes. It is protected by
// imagedPages.mu.
type earlyWrites struct {
	// until is when writes cease to be early, in terms of gohacks.Nanotime.
	until int64

	// closed is true once pages may be mapped.
	closed bool

	// noted are those so far, done those that were unshared before they came, in order.
	noted, done []memmap.FileRange
}

// noteEarly notes that fr is unshared for a write.
//
// Preconditions: p.mu must be locked.
func (p *imagedPages) noteEarly(fr memmap.FileRange) {
	e := &p.early
	if e.until == 0 {
		return
	}
	if len(e.noted) >= maxEarlyWrites || gohacks.Nanotime() > e.until {
		e.until = 0
		return
	}
	e.noted = append(e.noted, fr)
}

// EarlyWrites returns what was unshared for early writes, in order, and before them.
func (f *MemoryFile) EarlyWrites() []memmap.FileRange {
	f.imaged.mu.Lock()
	rs := slices.Concat(f.imaged.early.noted, f.imaged.early.done)
	f.imaged.mu.Unlock()
	return boundEarly(rs)
}

// boundEarly returns rs in order, with no page twice, and no more of it than is allowed.
func boundEarly(rs []memmap.FileRange) []memmap.FileRange {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b memmap.FileRange) int { return cmp.Compare(a.Start, b.Start) })
	var out []memmap.FileRange
	bytes := uint64(0)
	for _, r := range rs {
		if r.End <= r.Start || !hostarch.IsPageAligned(r.Start) || !hostarch.IsPageAligned(r.End) {
			continue
		}
		if n := len(out); n != 0 && r.Start <= out[n-1].End {
			if r.End > out[n-1].End {
				bytes += r.End - out[n-1].End
				out[n-1].End = r.End
			}
		} else {
			bytes += r.Length()
			out = append(out, r)
		}
		if bytes > maxEarlyBytes || len(out) > maxEarlyWrites {
			return out[:len(out)-1]
		}
	}
	return out
}

// ExpectWrites has the main MemoryFile, once it is loaded, unshare what another has returned
// from EarlyWrites.
//
// Preconditions: No MemoryFile is being loaded yet.
func (is *Images) ExpectWrites(rs []memmap.FileRange) { is.expected = boundEarly(rs) }

// restartEarly has what is written to from now on be early writes: to copies of what f is now
// they will be.
func (f *MemoryFile) restartEarly() {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	f.imaged.early.noted, f.imaged.early.done = nil, nil
	f.imaged.early.until = gohacks.Nanotime() + int64(earlyTime)
}

// beginEarly is called when f was loaded.
func (f *MemoryFile) beginEarly() {
	if f.imaged.images.main != f {
		return
	}
	f.restartEarly()
	if rs := f.imaged.images.expected; len(rs) != 0 {
		go f.unshareEarly(rs)
	}
}

// unshareEarly makes ordinary pages of those in rs that are imaged.
func (f *MemoryFile) unshareEarly(rs []memmap.FileRange) {
	for _, r := range rs {
		f.imaged.mu.Lock()
		if f.imaged.early.closed {
			f.imaged.mu.Unlock()
			return
		}
		if f.imaged.set.overlaps(r) {
			// Whoever needs a page that cannot be read will say so.
			if !f.readableLocked(r) || f.unshareLocked(r) != nil {
				f.imaged.mu.Unlock()
				return
			}
			f.imaged.early.done = append(f.imaged.early.done, r)
		}
		f.imaged.mu.Unlock()
	}
}

// readableLocked returns true if the imaged pages in fr can be read.
//
// Preconditions: f.imaged.mu is locked.
func (f *MemoryFile) readableLocked(fr memmap.FileRange) bool {
	buf := make([]byte, compareBytes)
	return f.imaged.set.visit(fr, func(r imagedRange) error {
		for off := uint64(0); !r.resident && off < r.Length(); off += compareBytes {
			if !readAll(r.image.fd, buf[:min(compareBytes, r.Length()-off)], r.off+off, 0) {
				return unix.EIO
			}
		}
		return nil
	}) == nil
}

// closeEarly ends unshareEarly.
func (f *MemoryFile) closeEarly() {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	f.imaged.early.closed = true
}

// ReadyForWrites returns the ranges in fr that were unshared because early writes were
// expected there.
func (f *MemoryFile) ReadyForWrites(fr memmap.FileRange) []memmap.FileRange {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	done := f.imaged.early.done
	i, _ := slices.BinarySearchFunc(done, fr.Start, func(r memmap.FileRange, at uint64) int {
		return cmp.Compare(r.End, at+1)
	})
	var out []memmap.FileRange
	for ; i < len(done) && done[i].Start < fr.End; i++ {
		if r := done[i].Intersect(fr); r.Length() != 0 && !f.imaged.set.overlaps(r) {
			out = append(out, r)
		}
	}
	return out
}

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
	"bytes"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Pages that are imaged again
//
// A write unshares more pages than it writes to, and programs write what was there before. So
// many pages that were unshared have the bytes of the Image still. Where they lay is noted, and
// while the kernel is paused those that are the same are made imaged again.

const (
	// minReshare is how many bytes must be the same in a row: less is not worth the pieces.
	minReshare = 2 * hostarch.PageSize

	// maxReshare is how many bytes are compared in one go, for nothing runs meanwhile.
	maxReshare = 64 << 20

	// compareBytes is how many are read at once.
	compareBytes = 64 << 10
)

// noteFormer notes that the pages in r were imaged.
//
// Preconditions: p.mu must be locked.
func (p *imagedPages) noteFormer(r imagedRange) {
	if r.image.data == nil {
		return // it may never be adopted
	}
	if n := len(p.former); n != 0 && p.former[n-1].continues(&r) {
		p.former[n-1].End = r.End
	} else if n < maxImagedRanges {
		p.former = append(p.former, r)
	}
}

// Reshare makes pages imaged again that were unshared and have the bytes of the Image still.
// What they take is given back in the background. It returns how many bytes that is.
//
// Preconditions: The kernel is paused, and no checkpoint is being made.
func (is *Images) Reshare(main *MemoryFile) uint64 {
	is.mu.Lock()
	files := slices.Collect(maps.Keys(is.files))
	is.mu.Unlock()
	total, left := uint64(0), uint64(maxReshare)
	type punch struct {
		f  *MemoryFile
		im *Image
	}
	punches := make(map[punch]struct{})
	for _, f := range files {
		for _, r := range f.findSame(&left) {
			total += r.Length()
			r.resident = true
			f.imaged.mu.Lock()
			f.imaged.set.put(r)
			f.hasImaged.Store(true)
			f.imaged.mu.Unlock()
			punches[punch{f, r.image}] = struct{}{}
		}
	}
	if total == 0 {
		return 0
	}
	main.MarkImaged(ImagedByAdopt)
	for p := range punches {
		go p.f.punchImaged(p.im) // S/R-SAFE: imaged.mu
	}
	return total
}

// findSame returns what of the pages that were imaged has the same bytes. It reads no more
// than left bytes of them.
func (f *MemoryFile) findSame(left *uint64) []imagedRange {
	f.imaged.mu.Lock()
	former, pieces := f.imaged.former, len(f.imaged.set.ranges)
	f.imaged.former = nil
	f.imaged.mu.Unlock()
	var same []imagedRange
	var later []imagedRange
	for i, r := range former {
		if *left == 0 || pieces+2*len(same) > fewRanges {
			later = append(later, former[i:]...)
			break
		}
		if r.Length() > *left {
			at := r.Start + *left
			later = append(later, r.cut(memmap.FileRange{Start: at, End: r.End}))
			r = r.cut(memmap.FileRange{Start: r.Start, End: at})
		}
		*left -= r.Length()
		for _, fr := range f.committedIn(r.FileRange) {
			same = f.appendSame(same, r.cut(fr))
		}
	}
	f.imaged.mu.Lock()
	f.imaged.former = append(f.imaged.former, later...)
	f.imaged.mu.Unlock()
	return same
}

// committedIn returns what of fr is allocated, known to be committed, and not imaged.
func (f *MemoryFile) committedIn(fr memmap.FileRange) (out []memmap.FileRange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for seg := f.memAcct.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = seg.NextSegment() {
		if ma := seg.ValuePtr(); ma.knownCommitted && !ma.wasteOrReleasing {
			out = append(out, f.ordinaryIn(seg.Range().Intersect(fr))...)
		}
	}
	return out
}

// ordinaryIn returns what of fr is not imaged.
func (f *MemoryFile) ordinaryIn(fr memmap.FileRange) (out []memmap.FileRange) {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	at := fr.Start
	f.imaged.set.visit(fr, func(r imagedRange) error {
		if r.Start > at {
			out = append(out, memmap.FileRange{Start: at, End: r.Start})
		}
		at = r.End
		return nil
	})
	if at < fr.End {
		out = append(out, memmap.FileRange{Start: at, End: fr.End})
	}
	return out
}

// appendSame appends the parts of r whose pages have the same bytes in f and in the Image.
func (f *MemoryFile) appendSame(same []imagedRange, r imagedRange) []imagedRange {
	ours, theirs := make([]byte, compareBytes), make([]byte, compareBytes)
	run := memmap.FileRange{Start: r.Start, End: r.Start}
	flush := func() {
		if run.Length() >= minReshare {
			same = append(same, r.cut(run))
		}
	}
	for at := r.Start; at < r.End; {
		n := min(r.End-at, compareBytes)
		if !readAll(f.FD(), ours[:n], at, 0) || !readAll(r.image.fd, theirs[:n], r.off+at-r.Start, unix.RWF_NOWAIT) {
			// They stay as they are: to read them from the disk would take too long.
			flush()
			at += n
			run = memmap.FileRange{Start: at, End: at}
			continue
		}
		for off := uint64(0); off < n; off += hostarch.PageSize {
			page := memmap.FileRange{Start: at + off, End: at + off + hostarch.PageSize}
			if !bytes.Equal(ours[off:off+hostarch.PageSize], theirs[off:off+hostarch.PageSize]) {
				flush()
				run = memmap.FileRange{Start: page.End, End: page.End}
				continue
			}
			run.End = page.End
		}
		at += n
	}
	flush()
	return same
}

// readAll returns true if all of buf could be read. Flags are those of preadv2.
func readAll(fd int, buf []byte, off uint64, flags int) bool {
	for len(buf) != 0 {
		n, err := unix.Preadv2(fd, [][]byte{buf}, int64(off), flags)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EOPNOTSUPP && flags != 0 { // a file system in memory
			flags = 0
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		buf = buf[n:]
		off += uint64(n)
	}
	return true
}

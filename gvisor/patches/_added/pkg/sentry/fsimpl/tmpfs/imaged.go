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

package tmpfs

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Files and imaged pages (see package pgalloc)
//
// Pages of a file that lie in an image are read there. write(2) and truncate(2) make those
// ordinary ones that they write to, and only these.
//
// Mappings of a file whose writable mappings are none (rf.onlyRead) have them in the image
// too, without permission to write. Before write(2) or truncate(2) change one, all mappings
// of it are invalidated, which finds the page in the MemoryFile the next time.
//
// If a mapping may be written through, that cannot be done: the fault for writing comes with
// locks held that the invalidation of mappings by others needs. Then pages are made
// ordinary when they are first mapped, a few at a time; and when the first such mapping
// comes, all others are invalidated once.

// MapsImaged implements memmap.ImagedMappable.MapsImaged.
func (rf *regularFile) MapsImaged() {}

// setOnlyReadLocked keeps rf.onlyRead up to date.
//
// Preconditions: rf.mapsMu is locked. rf.dataMu is not.
func (rf *regularFile) setOnlyReadLocked() {
	onlyRead := rf.writableMappingPages == 0
	rf.dataMu.Lock()
	changed := rf.onlyRead != onlyRead
	rf.onlyRead = onlyRead
	rf.dataMu.Unlock()
	if changed && !onlyRead && rf.inode.fs.mf.HasImaged() {
		// Translations from here on are of ordinary pages.
		rf.mappings.InvalidateAll(memmap.InvalidateOpts{})
	}
}

// initOnlyRead is called when rf and all that it has were loaded.
func (rf *regularFile) initOnlyRead() { rf.onlyRead = rf.writableMappingPages == 0 }

// imagedRangeLocked returns how much of translateRange to translate, given how much may be
// copied.
//
// Preconditions: rf.dataMu is locked.
func (rf *regularFile) imagedRangeLocked(translateRange, mayCopy memmap.MappableRange) memmap.MappableRange {
	if rf.onlyRead || !rf.inode.fs.mf.HasImaged() {
		return translateRange
	}
	return mayCopy
}

// imagedPermsLocked returns with which permissions to translate pages in mr. Those that may
// be written to are ordinary ones then.
//
// Preconditions: rf.dataMu is locked for writing.
func (rf *regularFile) imagedPermsLocked(mr memmap.MappableRange, at hostarch.AccessType) (hostarch.AccessType, error) {
	mf := rf.inode.fs.mf
	if !mf.HasImaged() {
		return hostarch.AnyAccess, nil
	}
	for seg := rf.data.LowerBoundSegment(mr.Start); seg.Ok() && seg.Start() < mr.End; seg = seg.NextSegment() {
		fr := seg.FileRangeOf(seg.Range().Intersect(mr))
		if rf.onlyRead && !at.Write {
			if _, ok := mf.FirstImaged(fr); ok {
				return hostarch.ReadExecute, nil
			}
			continue
		}
		if err := mf.Unshare(fr); err != nil {
			return hostarch.NoAccess, err
		}
	}
	return hostarch.AnyAccess, nil
}

// unshareForWrite makes pages in [start, end) ordinary ones that are about to be written to,
// and has nobody use a mapping of what they were.
//
// Preconditions: rf.inode.mu is locked.
func (rf *regularFile) unshareForWrite(start, end uint64) error {
	mf := rf.inode.fs.mf
	if !mf.HasImaged() || start >= end {
		return nil
	}
	mr := memmap.MappableRange{Start: hostarch.PageRoundDown(start), End: offsetPageEnd(int64(end))}
	any := false
	rf.dataMu.RLock()
	for seg := rf.data.LowerBoundSegment(mr.Start); seg.Ok() && seg.Start() < mr.End; seg = seg.NextSegment() {
		fr := seg.FileRangeOf(seg.Range().Intersect(mr))
		if _, ok := mf.FirstImaged(fr); !ok {
			continue
		}
		any = true
		if err := mf.Unshare(fr); err != nil {
			rf.dataMu.RUnlock()
			return err
		}
	}
	rf.dataMu.RUnlock()
	if any {
		rf.mapsMu.Lock()
		rf.mappings.Invalidate(mr, memmap.InvalidateOpts{})
		rf.mapsMu.Unlock()
	}
	return nil
}

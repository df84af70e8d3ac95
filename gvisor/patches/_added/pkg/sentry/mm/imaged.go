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

package mm

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// mayBeImaged returns true if p is of private memory of which pages may be imaged (see package
// pgalloc), so that their MemoryFile has to know of a write.
func (p *pma) mayBeImaged() bool {
	return p.private && p.needCOW && p.imagedFile() != nil
}

// imagedFile returns p.file if it is a MemoryFile of which pages may be imaged.
func (p *pma) imagedFile() *pgalloc.MemoryFile {
	if mf, ok := p.file.(*pgalloc.MemoryFile); ok && mf.HasImaged() {
		return mf
	}
	return nil
}

// unshareTranslated makes pages ordinary ones that are about to be mapped, if their Mappable
// does not know of images: it may write to them without invalidating mappings.
func unshareTranslated(mappable memmap.Mappable, ts []memmap.Translation) error {
	if _, ok := mappable.(memmap.ImagedMappable); ok {
		return nil
	}
	for _, t := range ts {
		if mf, ok := t.File.(*pgalloc.MemoryFile); ok {
			if err := mf.Unshare(t.FileRange()); err != nil {
				return &memmap.BusError{Err: err}
			}
		}
	}
	return nil
}

// unshareForWriteLocked prepares the part of pseg in ar, which needs copy-on-write, for a
// write: if mm is its only user, imaged pages there, and some around them, become ordinary
// ones, and pseg is isolated to pages of which none is imaged, which mm takes ownership of.
// It returns that pma, and which addresses have other mappings now. If there are other users,
// it does nothing: the pages will be copied.
//
// Preconditions:
//   - pseg.ValuePtr().mayBeImaged().
//   - vseg.Range().IsSupersetOf(pseg.Range()).
//   - pseg.Range().Overlaps(ar). ar is page-aligned.
//   - mm.mappingMu must be locked.
//   - mm.activeMu must be locked for writing.
//
// Postconditions: Iterators are invalidated.
func (mm *MemoryManager) unshareForWriteLocked(vseg vmaIterator, pseg pmaIterator, ar hostarch.AddrRange) (pmaIterator, hostarch.AddrRange, error) {
	pma := pseg.ValuePtr()
	mf := pma.imagedFile()
	all := pseg.fileRange()
	if _, ok := mf.FirstImaged(all); !ok && !mf.Folded() {
		return pseg, hostarch.AddrRange{}, nil
	}

	needAR := pseg.Range().Intersect(ar)
	need := pseg.fileRangeOf(needAR)
	_, imaged := mf.FirstImaged(need)
	var unit memmap.FileRange
	if imaged {
		unit = mf.UnshareUnit(need, pseg.fileRangeOf(unshareableAround(vseg.ValuePtr(), needAR).Intersect(pseg.Range())))
	} else {
		unit = mf.OrdinaryAround(need, all)
	}
	if !mf.HasUniqueRef(unit) {
		if unit == need || !mf.HasUniqueRef(need) {
			return pseg, hostarch.AddrRange{}, nil
		}
		unit = need
	}
	unitAR := hostarch.AddrRange{
		Start: pseg.Start() + hostarch.Addr(unit.Start-all.Start),
		End:   pseg.Start() + hostarch.Addr(unit.End-all.Start),
	}
	if imaged {
		if err := mf.Unshare(unit); err != nil {
			// As from a private mapping of a file that cannot be read.
			return pseg, hostarch.AddrRange{}, &memmap.BusError{Err: err}
		}
	}

	pseg = mm.pmas.Isolate(pseg, unitAR)
	pma = pseg.ValuePtr()
	vma := vseg.ValuePtr()
	pma.needCOW = false
	pma.effectivePerms = vma.effectivePerms
	pma.maxPerms = vma.maxPerms
	pma.internalMappings = safemem.BlockSeq{}
	if prev := pseg.PrevSegment(); prev.Ok() {
		if merged := mm.pmas.Merge(prev, pseg); merged.Ok() {
			pseg = merged
		}
	}
	if next := pseg.NextSegment(); next.Ok() {
		if merged := mm.pmas.Merge(pseg, next); merged.Ok() {
			pseg = merged
		}
	}
	// Pages that are ordinary already may still be mapped as they were when they were not.
	mm.lastUnshared = hostarch.AddrRange{}
	if imaged {
		mm.lastUnshared = unitAR
	}
	return pseg, unitAR, nil
}

// unshareableAround returns around which addresses pages may be unshared together with those
// at ar: the same as would be copied (see getPMAsInternalLocked).
func unshareableAround(vma *vma, ar hostarch.AddrRange) hostarch.AddrRange {
	switch {
	case vma.effectivePerms.Execute:
		return ar
	case vma.growsDown || vma.isStack:
		if start := ar.Start - hostarch.PageSize; start < ar.Start {
			ar.Start = start
		}
		if end := ar.End + hostarch.PageSize; end > ar.End {
			ar.End = end
		}
		return ar
	}
	return hugepageAligned(ar)
}

// imagedAround is how many ranges of imaged pages are mapped together on either side of a
// page fault. Each costs at least one mapping of the host.
const imagedAround = 4

// mapFileASLocked maps addresses in mapAR, all of them or at least those that are in ar too,
// to the pages of pseg's file, wherever they are.
//
// Preconditions:
//   - pseg.Range().IsSupersetOf(mapAR).
//   - perms.Any().
//   - mm.activeMu must be locked.
func (mm *MemoryManager) mapFileASLocked(pseg pmaIterator, mapAR, ar hostarch.AddrRange, perms hostarch.AccessType, precommit bool) error {
	pma := pseg.ValuePtr()
	mf := pma.imagedFile()
	if mf == nil {
		return mm.as.MapFile(mapAR.Start, pma.file, pseg.fileRangeOf(mapAR), perms, precommit)
	}
	needAR := mapAR.Intersect(ar)
	if needAR.Length() == 0 {
		return nil
	}
	fr := pseg.fileRangeOf(mapAR)
	if perms.Write {
		// This does nothing but where a pma is pinned.
		if err := mf.Unshare(fr); err != nil {
			return err
		}
		if u := mm.lastUnshared; u.IsSupersetOf(needAR) && mapAR.IsSupersetOf(u) {
			return mm.as.MapFile(u.Start, mf, pseg.fileRangeOf(u), perms, true)
		}
		return mm.as.MapFile(mapAR.Start, mf, fr, perms, precommit)
	}
	around := mf.Around(pseg.fileRangeOf(needAR), fr, imagedAround)
	for _, p := range mf.Pieces(around) {
		addr := mapAR.Start + hostarch.Addr(p.Start-fr.Start)
		if err := mm.as.MapFile(addr, p.File, memmap.FileRange{Start: p.Offset, End: p.Offset + p.Length()}, perms, precommit); err != nil {
			return err
		}
	}
	return nil
}

// MarkImaged implements pgalloc.ImagedUser.MarkImaged: private memory of which pages are imaged
// will be copied on write, and mappings of files, of which it cannot be known what they will
// do, are forgotten.
func (mm *MemoryManager) MarkImaged(why pgalloc.ImagedReason) {
	if why == pgalloc.ImagedByLoad {
		mm.mappingMu.RLock()
		defer mm.mappingMu.RUnlock()
	}
	mm.activeMu.Lock()
	defer mm.activeMu.Unlock()
	var unmapAR hostarch.AddrRange
	unmap := func(ar hostarch.AddrRange) {
		if why == pgalloc.ImagedByLoad {
			return
		}
		if unmapAR.End != ar.Start {
			mm.unmapASLocked(unmapAR)
			unmapAR.Start = ar.Start
		}
		unmapAR.End = ar.End
	}
	pseg := mm.pmas.FirstSegment()
	for pseg.Ok() {
		pma := pseg.ValuePtr()
		if why == pgalloc.ImagedByAdopt {
			pma.internalMappings = safemem.BlockSeq{}
			unmap(pseg.Range())
		}
		mf := pma.imagedFile()
		if mf == nil {
			pseg = pseg.NextSegment()
			continue
		}
		fr := pseg.fileRange()
		if _, ok := mf.FirstImaged(fr); !ok {
			pseg = pseg.NextSegment()
			continue
		}
		if !pma.private {
			unmap(pseg.Range())
			mm.removeRSSLocked(pseg.Range())
			// Mappings are gone once unmap is called of what follows, or below.
			mm.unmapASLocked(unmapAR)
			unmapAR = hostarch.AddrRange{}
			pma.file.DecRef(fr)
			pseg = mm.pmas.Remove(pseg).NextSegment()
			continue
		}
		if !pma.needCOW {
			mm.markImagedLocked(pma, mf, fr)
			unmap(pseg.Range())
		}
		if why == pgalloc.ImagedByLoad {
			pseg = mm.ownReadyLocked(pseg, mf, fr)
		}
		pseg = pseg.NextSegment()
	}
	mm.unmapASLocked(unmapAR)
}

// markImagedLocked has a private pma of which pages are imaged need copy-on-write.
func (mm *MemoryManager) markImagedLocked(pma *pma, mf *pgalloc.MemoryFile, fr memmap.FileRange) {
	if mm.hasPinned && !mf.HasUniqueRef(fr) {
		// Pages may be pinned, and must stay where they are.
		if err := mf.Unshare(fr); err != nil {
			panic(fmt.Sprintf("pinned pages %v cannot be read: %v", fr, err))
		}
		return
	}
	pma.needCOW = true
	pma.effectivePerms.Write = false
	pma.maxPerms.Write = false
	pma.huge = false
	pma.internalMappings = safemem.BlockSeq{}
}

// ownReadyLocked has mm own the pages of pseg, in fr of mf, that were unshared because writes
// are expected there, as it would own them after the first one. It returns the last of the
// pmas that pseg has become.
//
// Preconditions:
//   - mm.mappingMu must be locked.
//   - mm.activeMu must be locked for writing.
//
// Postconditions: Iterators are invalidated.
func (mm *MemoryManager) ownReadyLocked(pseg pmaIterator, mf *pgalloc.MemoryFile, fr memmap.FileRange) pmaIterator {
	if !pseg.ValuePtr().needCOW {
		return pseg
	}
	vseg := mm.vmas.FindSegment(pseg.Start())
	if !vseg.Ok() || !vseg.Range().IsSupersetOf(pseg.Range()) || !vseg.ValuePtr().effectivePerms.Write {
		return pseg
	}
	vma := vseg.ValuePtr()
	start, end := pseg.Start(), pseg.End()
	for _, r := range mf.ReadyForWrites(fr) {
		if !mf.HasUniqueRef(r) {
			continue
		}
		ar := hostarch.AddrRange{Start: start + hostarch.Addr(r.Start-fr.Start), End: start + hostarch.Addr(r.End-fr.Start)}
		pseg = mm.pmas.Isolate(mm.pmas.FindSegment(ar.Start), ar)
		pma := pseg.ValuePtr()
		pma.needCOW = false
		pma.effectivePerms = vma.effectivePerms
		pma.maxPerms = vma.maxPerms
		pma.internalMappings = safemem.BlockSeq{}
	}
	return mm.pmas.FindSegment(end - 1)
}

// CheckImaged ends the sandbox if the page at addr, which the application could not read, is
// one of an image that cannot be read.
func (mm *MemoryManager) CheckImaged(addr hostarch.Addr) {
	mm.activeMu.RLock()
	defer mm.activeMu.RUnlock()
	if pseg := mm.pmas.FindSegment(addr); pseg.Ok() {
		if mf := pseg.ValuePtr().imagedFile(); mf != nil {
			mf.CheckImaged(pseg.ValuePtr().off + uint64(addr-pseg.Start()))
		}
	}
}

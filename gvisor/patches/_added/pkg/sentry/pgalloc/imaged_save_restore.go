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
	"fmt"
	"slices"
	"sort"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// entriesIn returns those that overlap fr.
func entriesIn(entries []ImageTableEntry, fr memmap.FileRange) []ImageTableEntry {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].End > fr.Start })
	j := i
	for j < len(entries) && entries[j].Start < fr.End {
		j++
	}
	return entries[i:j]
}

// loadImaged notes where the pages in fr lie, of which those that the table does not mention
// are in the pages file at off. It returns how many bytes these are.
func (f *MemoryFile) loadImaged(fr memmap.FileRange, off uint64) (uint64, error) {
	is := f.imaged.images
	rs, own := is.imagedOf(is.table.of(f.opts.ResourceID.String()), fr, off)
	for _, r := range rs {
		if r.off+r.Length() > r.image.Size() {
			return 0, fmt.Errorf("pages %v should be in image %q at %#x, which is only %d bytes long", r.FileRange, r.image.id, r.off, r.image.Size())
		}
	}
	f.imaged.loading = append(f.imaged.loading, rs...)
	return own, nil
}

// finishLoadImaged makes the pages imaged that loadImaged has noted; the shortest ranges are
// copied if there are too many.
func (f *MemoryFile) finishLoadImaged() error {
	rs := f.imaged.loading
	f.imaged.loading = nil
	if len(rs) == 0 {
		return nil
	}
	var copied []imagedRange
	if len(rs) > maxImagedRanges {
		slices.SortFunc(rs, func(a, b imagedRange) int { return cmp.Compare(b.Length(), a.Length()) })
		rs, copied = rs[:maxImagedRanges], rs[maxImagedRanges:]
		slices.SortFunc(rs, func(a, b imagedRange) int { return cmp.Compare(a.Start, b.Start) })
	}
	for _, r := range copied {
		if err := f.copyFromImage(r); err != nil {
			return fmt.Errorf("pages %v cannot be read from image %q: %w", r.FileRange, r.image.id, err)
		}
	}
	f.imaged.images.addFile(f)
	f.imaged.mu.Lock()
	f.imaged.set.fill(rs)
	f.imaged.mu.Unlock()
	f.hasImaged.Store(true)
	f.beginEarly()
	return nil
}

// imagedSave is what one SaveTo does about imaged pages.
type imagedSave struct {
	f              *MemoryFile
	images         *Images
	entries, saved []imagedRange
}

// beginSaveImaged returns nil if no page is imaged and none will be.
func (f *MemoryFile) beginSaveImaged(opts *SaveOpts) (*imagedSave, error) {
	if opts.PagesFile == nil {
		// There is no file beside which a table would make sense.
		return nil, f.Unshare(memmap.FileRange{End: f.TotalSize()})
	}
	if f.imaged.images == nil {
		f.imaged.images = opts.Images
	}
	if f.imaged.images == nil {
		return nil, nil
	}
	if f.HasImaged() && f.imaged.images.savingImage() == nil {
		return nil, fmt.Errorf("pages lie in images, and there is no file for the table of them")
	}
	f.imaged.images.addFile(f)
	return &imagedSave{f: f, images: f.imaged.images}, f.unshareFolded()
}

// unshareFolded makes the pages ordinary ones that are to be saved once more.
func (f *MemoryFile) unshareFolded() error {
	is := f.imaged.images
	is.mu.Lock()
	var fold map[*Image]struct{}
	if is.saving != nil {
		fold = is.saving.fold
	}
	is.mu.Unlock()
	if len(fold) == 0 {
		return nil
	}
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	var frs []memmap.FileRange
	for _, r := range f.imaged.set.ranges {
		if _, ok := fold[r.image]; ok {
			frs = append(frs, r.FileRange)
		}
	}
	f.imaged.folded = f.imaged.folded || len(frs) != 0
	for _, fr := range frs {
		if err := f.unshareLocked(fr); err != nil {
			return err
		}
	}
	return nil
}

// split calls write with the parts of fr that are not imaged. off is where the first of them
// comes in the pages file.
func (s *imagedSave) split(fr memmap.FileRange, off uint64, write func(memmap.FileRange)) {
	if s == nil {
		write(fr)
		return
	}
	image := s.images.savingImage()
	at := fr.Start
	own := func(end uint64) {
		if end > at {
			r := imagedRange{FileRange: memmap.FileRange{Start: at, End: end}, off: off, image: image, resident: true}
			off += end - at
			if image != nil {
				s.saved = append(s.saved, r)
			}
			write(r.FileRange)
		}
	}
	s.f.imaged.mu.Lock()
	defer s.f.imaged.mu.Unlock()
	s.f.imaged.set.visit(fr, func(r imagedRange) error {
		if r.image.data == nil {
			return nil // it was not adopted, and may never be published
		}
		own(r.Start)
		s.entries = append(s.entries, r)
		at = r.End
		return nil
	})
	own(fr.End)
}

// done tells Images.
func (s *imagedSave) done() {
	if s != nil {
		s.images.add(s.f, s.entries, s.saved)
	}
}

func (is *Images) savingImage() *Image {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.saving == nil {
		return nil
	}
	return is.saving.image
}

// versionImaged is the version of the metadata of a MemoryFile of which pages are imaged. Who
// knows only version 1 refuses it, and must: pages are not where it would look for them.
const versionImaged = 2

// hasEntries returns true if a page was not saved.
func (s *imagedSave) hasEntries() bool { return s != nil && len(s.entries) != 0 }

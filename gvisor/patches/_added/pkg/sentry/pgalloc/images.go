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
	"maps"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sync"
)

// Images are all Images that pages of the MemoryFiles of one sentry lie in, and what is going
// on with them. The main MemoryFile has it from SetImages, others get it from that one when
// they are loaded or saved.
type Images struct {
	// verb is held by Exclude. It is locked before all other locks of this package.
	verb sync.Mutex

	mu sync.Mutex

	// byID are all Images, those of which only the name is known too. Protected by mu.
	byID map[string]*Image

	// own is the pages file that MemoryFiles are being loaded from, and table says which
	// pages lie elsewhere. Both are immutable.
	own   *Image
	table *ImageTable

	// main is the MemoryFile that SetImages was called of, and expected where writes to it
	// are to be expected. Both are immutable once it is being loaded.
	main     *MemoryFile
	expected []memmap.FileRange

	// files are all MemoryFiles of which pages may be imaged. Protected by mu.
	files map[*MemoryFile]struct{}

	// saving is the checkpoint that is being made, or was last made. Protected by mu.
	saving *savedImage
}

// savedImage is a checkpoint that is being made.
type savedImage struct {
	// image has no mapping yet.
	image *Image

	// table says which pages lie elsewhere, saved which pages were written. Each MemoryFile
	// adds its own. Protected by Images.mu.
	table ImageTable
	saved map[*MemoryFile][]imagedRange

	// fold are Images whose pages are to be saved. It is immutable.
	fold map[*Image]struct{}
}

// NewImages returns the Images of a sentry. own is the pages file that MemoryFiles will be
// loaded from, which table belongs to; both may be nil. All that table names must be in
// images.
func NewImages(own *Image, table *ImageTable, images []*Image) (*Images, error) {
	is := &Images{byID: make(map[string]*Image), own: own, table: table, files: make(map[*MemoryFile]struct{})}
	for _, im := range images {
		is.byID[im.id] = im
	}
	if own != nil {
		is.byID[own.id] = own
	}
	if table != nil {
		for _, id := range table.IDs {
			if is.byID[id] == nil {
				return nil, fmt.Errorf("pages lie in image %q, which was not given", id)
			}
		}
	}
	return is, nil
}

// Exclude has everybody else wait who calls it, until done is called: a checkpoint, the adoption
// of one, and Reshare must not meet, also where whoever has asked for one has given up.
func (is *Images) Exclude() (done func()) {
	is.verb.Lock()
	return is.verb.Unlock
}

// SetImages must be called of the main MemoryFile before it is loaded or saved, and at most
// once.
func (f *MemoryFile) SetImages(is *Images) {
	f.imaged.images = is
	is.main = f
}

// Images returns what SetImages set, or nil.
func (f *MemoryFile) Images() *Images { return f.imaged.images }

// BeginSave has the next checkpoint be called id. What was saved in the last one, but was not
// adopted, is in no Image. If pages lie in more Images than most, those of the Images in which
// the fewest lie are saved once more, so many that it takes a while until there are too many
// again. 0 means no limit.
//
// Preconditions: No checkpoint is being made.
func (is *Images) BeginSave(id string, most int) error {
	is.mu.Lock()
	defer is.mu.Unlock()
	if im := is.byID[id]; id == "" || im != nil && im.data != nil {
		return fmt.Errorf("no checkpoint can be called %q", id)
	}
	is.forgetSavedLocked()
	is.saving = &savedImage{
		image: &Image{id: id, fd: -1},
		saved: make(map[*MemoryFile][]imagedRange),
		fold:  is.foldLocked(most),
	}
	return nil
}

// foldLocked returns whose pages are to be saved so that no more than most Images are left.
//
// Preconditions: is.mu is locked.
func (is *Images) foldLocked(most int) map[*Image]struct{} {
	sizes := make(map[*Image]uint64)
	for f := range is.files {
		f.imaged.mu.Lock()
		for i := range f.imaged.set.ranges {
			sizes[f.imaged.set.ranges[i].image] += f.imaged.set.ranges[i].Length()
		}
		f.imaged.mu.Unlock()
	}
	if most == 0 || len(sizes) <= most {
		return nil
	}
	images := slices.SortedFunc(maps.Keys(sizes), func(a, b *Image) int {
		return cmp.Or(cmp.Compare(sizes[a], sizes[b]), strings.Compare(a.id, b.id))
	})
	fold := make(map[*Image]struct{})
	for _, im := range images[:len(images)-(most+1)/2] {
		fold[im] = struct{}{}
	}
	return fold
}

// addFile notes that pages of f may be imaged.
func (is *Images) addFile(f *MemoryFile) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.files[f] = struct{}{}
}

// An ImagedUsage is what MemoryFiles have in Images, in bytes.
type ImagedUsage struct {
	// Main is how much of the main MemoryFile, and Others of all others, is in Images alone:
	// the host has no memory for it that is only theirs.
	Main, Others uint64

	// OthersCommitted is how much of the others is known to be committed, and so counted as
	// memory of the application.
	OthersCommitted uint64
}

// Usage returns what there is now.
func (is *Images) Usage() (u ImagedUsage) {
	is.mu.Lock()
	files := slices.Collect(maps.Keys(is.files))
	is.mu.Unlock()
	for _, f := range files {
		absent := f.absentBytes()
		if f == is.main {
			u.Main += absent
			continue
		}
		u.Others += absent
		f.mu.Lock()
		u.OthersCommitted += f.knownCommittedBytes
		f.mu.Unlock()
	}
	return u
}

// forgetSavedLocked makes the pages ordinary ones that were saved in an image which was not
// adopted. They are resident.
//
// Preconditions: is.mu is locked.
func (is *Images) forgetSavedLocked() {
	s := is.saving
	is.saving = nil
	if s == nil {
		return
	}
	for f := range s.saved {
		f.imaged.mu.Lock()
		f.imaged.set.removeImage(s.image)
		f.imaged.mu.Unlock()
	}
}

// Table returns which pages of the checkpoint that was made lie in other Images; nil if none
// does.
func (is *Images) Table() *ImageTable {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.saving == nil || len(is.saving.table.Files) == 0 {
		return nil
	}
	return &is.saving.table
}

// add adds what f has saved, and what it has not saved because it is imaged.
func (is *Images) add(f *MemoryFile, entries, saved []imagedRange) {
	is.mu.Lock()
	defer is.mu.Unlock()
	s := is.saving
	if s == nil {
		return
	}
	s.table.add(f.opts.ResourceID.String(), entries)
	s.saved[f] = saved
}

// KeepSaved makes all pages that were saved imaged, in an Image of which only the name is
// known as yet. They are resident, and stay so until Adopt.
//
// Preconditions: The checkpoint was made without an error. The kernel has not been resumed.
func (is *Images) KeepSaved() {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.saving == nil {
		return
	}
	for f, saved := range is.saving.saved {
		f.imaged.mu.Lock()
		for _, r := range saved {
			f.imaged.set.put(r)
		}
		f.hasImaged.Store(len(f.imaged.set.ranges) != 0 || f.imaged.folded)
		f.imaged.mu.Unlock()
		is.saving.saved[f] = nil
	}
}

// Adopt has the pages that were saved in the last checkpoint lie in im, which must be its
// pages file. What they take in their MemoryFile is given back in the background.
//
// Preconditions: The kernel is paused. The caller calls MarkImaged(ImagedByAdopt) of the main
// MemoryFile before it is resumed.
func (is *Images) Adopt(im *Image) error {
	is.mu.Lock()
	defer is.mu.Unlock()
	s := is.saving
	if s == nil || s.image.id != im.id {
		return fmt.Errorf("the last checkpoint is not called %q", im.id)
	}
	for f := range s.saved {
		f.imaged.mu.Lock()
		err := f.imaged.set.replaceImage(s.image, im)
		f.imaged.mu.Unlock()
		if err != nil {
			// All that may have been replaced is resident still.
			for f := range s.saved {
				f.imaged.mu.Lock()
				f.imaged.set.removeImage(im)
				f.imaged.mu.Unlock()
			}
			is.forgetSavedLocked()
			return err
		}
	}
	is.byID[im.id] = im
	is.saving = nil
	is.main.restartEarly()
	for f := range s.saved {
		go f.punchImaged(im) // S/R-SAFE: imaged.mu
	}
	return nil
}

// ReleaseUnused releases Images in which no page lies any more, and returns how many.
//
// Preconditions: The kernel is paused, and MarkImaged(ImagedByAdopt) has just been called of
// the main MemoryFile: nobody has a mapping of them, or is about to use one.
func (is *Images) ReleaseUnused() (n int) {
	is.mu.Lock()
	defer is.mu.Unlock()
	unused := make(map[*Image]struct{})
	for _, im := range is.byID {
		if im.data != nil {
			unused[im] = struct{}{}
		}
	}
	for f := range is.files {
		f.imaged.mu.Lock()
		for _, r := range f.imaged.set.ranges {
			delete(unused, r.image)
		}
		f.imaged.mu.Unlock()
	}
	for f := range is.files {
		f.imaged.mu.Lock()
		f.imaged.former = slices.DeleteFunc(f.imaged.former, func(r imagedRange) bool {
			_, ok := unused[r.image]
			return ok
		})
		f.imaged.mu.Unlock()
	}
	for im := range unused {
		delete(is.byID, im.id)
		im.Release()
	}
	return len(unused)
}

// maxPunch is how much of a file is given back while its lock is held, in bytes.
const maxPunch = 8 << 20

// punchImaged gives back what the pages take that lie in im.
func (f *MemoryFile) punchImaged(im *Image) {
	for at := uint64(0); ; {
		f.imaged.mu.Lock()
		r, ok := f.imaged.set.nextResident(im, at)
		if !ok {
			f.imaged.mu.Unlock()
			return
		}
		if r.Length() > maxPunch {
			r = r.cut(memmap.FileRange{Start: r.Start, End: r.Start + maxPunch})
		}
		if err := f.decommitFile(r.FileRange); err != nil {
			// They stay resident, which is harmless.
			log.Warningf("MemoryFile(%p): %v is not given back: %v", f, r.FileRange, err)
		} else {
			r.resident = false
			f.imaged.set.put(r)
		}
		f.imaged.mu.Unlock()
		at = r.End
	}
}

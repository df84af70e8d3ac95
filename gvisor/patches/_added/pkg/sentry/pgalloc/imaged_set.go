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
	"slices"
	"sort"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// imagedRange is a range of a MemoryFile whose bytes are those of an Image.
type imagedRange struct {
	memmap.FileRange

	// off is where the range begins in image, in bytes.
	off   uint64
	image *Image

	// resident is true if the MemoryFile has the same bytes: only that they
	// are written to must be noticed.
	resident bool
}

// continues returns true if r2 continues r in both files.
func (r *imagedRange) continues(r2 *imagedRange) bool {
	return r.End == r2.Start && r.image == r2.image && r.resident == r2.resident && r.off+r.Length() == r2.off
}

// cut returns the part of r in fr, which must not be empty.
func (r imagedRange) cut(fr memmap.FileRange) imagedRange {
	c := r.Intersect(fr)
	r.off += c.Start - r.Start
	r.FileRange = c
	return r
}

// imagedSet is a set of imagedRanges that do not overlap, ordered, as few as there can be. A
// slice is enough: there are at most maxImagedRanges, and fewer by far as a rule.
type imagedSet struct {
	ranges []imagedRange

	// absent is how many bytes of them are not resident.
	absent uint64
}

// at returns the index of the first range that ends after off.
func (s *imagedSet) at(off uint64) int {
	return sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].End > off })
}

// overlaps returns true if a part of fr is in s.
func (s *imagedSet) overlaps(fr memmap.FileRange) bool {
	i := s.at(fr.Start)
	return i < len(s.ranges) && s.ranges[i].Start < fr.End
}

// visit calls fn with the part in fr of each range that has one, in order.
func (s *imagedSet) visit(fr memmap.FileRange, fn func(imagedRange) error) error {
	for i := s.at(fr.Start); i < len(s.ranges) && s.ranges[i].Start < fr.End; i++ {
		if err := fn(s.ranges[i].cut(fr)); err != nil {
			return err
		}
	}
	return nil
}

// remove takes fr out of s, and returns how many bytes of it were in it.
func (s *imagedSet) remove(fr memmap.FileRange) uint64 {
	i := s.at(fr.Start)
	j := i
	removed := uint64(0)
	var rest [2]imagedRange // what is left of the first and of the last
	n := 0
	for ; j < len(s.ranges) && s.ranges[j].Start < fr.End; j++ {
		r := s.ranges[j]
		c := r.Intersect(fr)
		removed += c.Length()
		if !r.resident {
			s.absent -= c.Length()
		}
		if r.Start < fr.Start {
			rest[n] = r.cut(memmap.FileRange{Start: r.Start, End: fr.Start})
			n++
		}
		if r.End > fr.End {
			rest[n] = r.cut(memmap.FileRange{Start: fr.End, End: r.End})
			n++
		}
	}
	if i != j {
		s.ranges = slices.Replace(s.ranges, i, j, rest[:n]...)
	}
	return removed
}

// put makes r a part of s, in place of what was there.
func (s *imagedSet) put(r imagedRange) {
	s.remove(r.FileRange)
	if !r.resident {
		s.absent += r.Length()
	}
	i := s.at(r.Start)
	j := i
	if i > 0 && s.ranges[i-1].continues(&r) {
		i--
		r.Start, r.off = s.ranges[i].Start, s.ranges[i].off
	}
	if j < len(s.ranges) && r.continues(&s.ranges[j]) {
		r.End = s.ranges[j].End
		j++
	}
	s.ranges = slices.Replace(s.ranges, i, j, r)
}

// fill puts rs, which are ordered and do not overlap, into s, which is empty.
func (s *imagedSet) fill(rs []imagedRange) {
	s.ranges = slices.Grow(s.ranges[:0], len(rs))
	for _, r := range rs {
		if !r.resident {
			s.absent += r.Length()
		}
		if n := len(s.ranges); n > 0 && s.ranges[n-1].continues(&r) {
			s.ranges[n-1].End = r.End
			continue
		}
		s.ranges = append(s.ranges, r)
	}
}

// removeImage takes all ranges of an Image out of s.
func (s *imagedSet) removeImage(im *Image) {
	s.ranges = slices.DeleteFunc(s.ranges, func(r imagedRange) bool {
		if r.image == im && !r.resident {
			s.absent -= r.Length()
		}
		return r.image == im
	})
}

// replaceImage has ranges of one Image be ranges of another with the same content. It does
// nothing if that is too short.
func (s *imagedSet) replaceImage(before, after *Image) error {
	for i := range s.ranges {
		if r := &s.ranges[i]; r.image == before && r.off+r.Length() > after.Size() {
			return fmt.Errorf("image %q is %d bytes long, and pages %v should be at %#x", after.id, after.Size(), r.FileRange, r.off)
		}
	}
	for i := range s.ranges {
		if s.ranges[i].image == before {
			s.ranges[i].image = after
		}
	}
	return nil
}

// nextResident returns the first range of an Image from off on that is resident.
func (s *imagedSet) nextResident(im *Image, off uint64) (imagedRange, bool) {
	for i := s.at(off); i < len(s.ranges); i++ {
		if r := s.ranges[i]; r.image == im && r.resident {
			return r, true
		}
	}
	return imagedRange{}, false
}

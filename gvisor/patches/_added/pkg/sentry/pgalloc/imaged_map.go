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

	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// mapImaged returns the internal mappings of fr for reading, if a part of it is imaged.
func (f *MemoryFile) mapImaged(fr memmap.FileRange) (safemem.BlockSeq, bool, error) {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	if !f.imaged.set.overlaps(fr) {
		return safemem.BlockSeq{}, false, nil
	}
	var blocks []safemem.Block
	own := func(fr memmap.FileRange) {
		if fr.Length() != 0 {
			f.forEachMappingSlice(fr, func(bs []byte) {
				blocks = append(blocks, safemem.BlockFromSafeSlice(bs))
			})
		}
	}
	at := fr.Start
	err := f.imaged.set.visit(fr, func(r imagedRange) error {
		if r.image.data == nil {
			return nil // not there yet: it is resident
		}
		own(memmap.FileRange{Start: at, End: r.Start})
		src := memmap.FileRange{Start: r.off, End: r.off + r.Length()}
		if src.End > r.image.Size() {
			return fmt.Errorf("%v is only %d bytes long", r.image, r.image.Size())
		}
		blocks = append(blocks, r.image.block(src))
		at = r.End
		return nil
	})
	if err != nil {
		return safemem.BlockSeq{}, true, err
	}
	own(memmap.FileRange{Start: at, End: fr.End})
	return safemem.BlockSeqFromSlice(blocks), true, nil
}

// A Piece is a part of a MemoryFile by where its bytes are.
type Piece struct {
	memmap.FileRange

	// File is the MemoryFile itself or an Image, and Offset the offset there.
	File   memmap.File
	Offset uint64
}

// Pieces returns the pieces that fr consists of, in order. None of them may be mapped with
// permission to write if one of them is imaged.
func (f *MemoryFile) Pieces(fr memmap.FileRange) []Piece {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	var pieces []Piece
	own := func(fr memmap.FileRange) {
		if fr.Length() != 0 {
			pieces = append(pieces, Piece{fr, f, fr.Start})
		}
	}
	at := fr.Start
	f.imaged.set.visit(fr, func(r imagedRange) error {
		if r.image.data == nil {
			return nil
		}
		own(memmap.FileRange{Start: at, End: r.Start})
		pieces = append(pieces, Piece{r.FileRange, r.image, r.off})
		at = r.End
		return nil
	})
	own(memmap.FileRange{Start: at, End: fr.End})
	return pieces
}

// Around returns the part of optional around fr that has at most n pieces on either side.
//
// Preconditions: optional.IsSupersetOf(fr).
func (f *MemoryFile) Around(fr, optional memmap.FileRange, n int) memmap.FileRange {
	f.imaged.mu.Lock()
	defer f.imaged.mu.Unlock()
	s := &f.imaged.set
	i := s.at(fr.Start)
	out := optional
	if lo := i - n; lo >= 0 {
		out.Start = max(out.Start, min(s.ranges[lo].Start, fr.Start))
	}
	if hi := s.at(fr.End) + n; hi < len(s.ranges) {
		out.End = min(out.End, max(s.ranges[hi].Start, fr.End))
	}
	return out
}

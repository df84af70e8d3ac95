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
	"math/rand"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// cell is what a model of an imagedSet, which has one for each byte, says of it.
type cell struct {
	image    *Image
	off      uint64
	resident bool
}

// TestImagedSetAgainstModel does the same to a set and to a model of it.
func TestImagedSetAgainstModel(t *testing.T) {
	const size = 64
	images := []*Image{{}, {}}
	for seed := range int64(200) {
		rnd := rand.New(rand.NewSource(seed))
		var s imagedSet
		var model [size]cell
		for range 100 {
			start := uint64(rnd.Intn(size - 1))
			fr := memmap.FileRange{Start: start, End: start + 1 + uint64(rnd.Intn(size-int(start)))}
			fr.End = min(fr.End, size)
			if rnd.Intn(2) == 0 {
				want := uint64(0)
				for i := fr.Start; i < fr.End; i++ {
					if model[i].image != nil {
						want++
					}
					model[i] = cell{}
				}
				if got := s.remove(fr); got != want {
					t.Fatalf("seed %d: remove(%v) returned %d, want %d", seed, fr, got, want)
				}
			} else {
				r := imagedRange{FileRange: fr, off: start, image: images[rnd.Intn(2)], resident: rnd.Intn(2) == 0}
				if rnd.Intn(4) == 0 {
					r.off += 1000
				}
				s.put(r)
				for i := fr.Start; i < fr.End; i++ {
					model[i] = cell{r.image, r.off + i - fr.Start, r.resident}
				}
			}
			check(t, &s, model[:], rnd)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func check(t *testing.T, s *imagedSet, model []cell, rnd *rand.Rand) {
	t.Helper()
	absent := uint64(0)
	for i := range model {
		if model[i].image != nil && !model[i].resident {
			absent++
		}
	}
	if s.absent != absent {
		t.Errorf("absent is %d, want %d", s.absent, absent)
	}
	for i := 1; i < len(s.ranges); i++ {
		a, b := &s.ranges[i-1], &s.ranges[i]
		if a.End > b.Start || a.continues(b) || b.Length() == 0 {
			t.Errorf("%v and %v are no two ranges of a set", a, b)
		}
	}
	start := rnd.Intn(len(model))
	fr := memmap.FileRange{Start: uint64(start), End: uint64(start + rnd.Intn(len(model)-start) + 1)}
	fr.End = min(fr.End, uint64(len(model)))
	seen := make([]cell, len(model))
	any := false
	s.visit(fr, func(r imagedRange) error {
		for i := r.Start; i < r.End; i++ {
			seen[i] = cell{r.image, r.off + i - r.Start, r.resident}
			any = true
		}
		return nil
	})
	for i := range model {
		want := cell{}
		if uint64(i) >= fr.Start && uint64(i) < fr.End {
			want = model[i]
		}
		if seen[i] != want {
			t.Errorf("byte %d of %v is %v, want %v", i, fr, seen[i], want)
		}
	}
	if s.overlaps(fr) != any {
		t.Errorf("overlaps(%v) is %v", fr, !any)
	}
}

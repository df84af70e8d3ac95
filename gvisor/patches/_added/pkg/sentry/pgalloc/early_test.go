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
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/gohacks"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// newEarlyFile makes the main MemoryFile of a sandbox that is being loaded, all imaged.
func newEarlyFile(t *testing.T, pages uint64, expected ...memmap.FileRange) (*MemoryFile, func(first, end uint64) memmap.FileRange) {
	t.Helper()
	im := openTestImage(t, "im", int(pages), 1)
	f, fr := newImagedFile(t, im, pages)
	is, err := NewImages(im, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.SetImages(is)
	is.ExpectWrites(expected)
	return f, func(first, end uint64) memmap.FileRange {
		return memmap.FileRange{Start: fr.Start + first*page, End: fr.Start + end*page}
	}
}

func TestEarlyWritesAreNotedAndLaterOnesAreNot(t *testing.T) {
	f, at := newEarlyFile(t, 64)
	all := at(0, 64)
	f.UnshareUnit(at(40, 41), all)
	if got := f.EarlyWrites(); got != nil {
		t.Errorf("before it was loaded: got %v", got)
	}
	f.beginEarly()
	for _, fr := range []memmap.FileRange{at(20, 21), at(3, 4), at(4, 5), at(20, 21)} {
		f.UnshareUnit(fr, fr)
	}
	want := []memmap.FileRange{at(3, 5), at(20, 21)}
	if got := f.EarlyWrites(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f.imaged.early.until = gohacks.Nanotime() - 1
	f.UnshareUnit(at(60, 61), at(60, 61))
	if got := f.EarlyWrites(); !reflect.DeepEqual(got, want) {
		t.Errorf("later: got %v, want %v", got, want)
	}
}

// TestPagesThatAreWrittenToEarlyAreReadyForIt: and no others, whatever is said to be.
func TestPagesThatAreWrittenToEarlyAreReadyForIt(t *testing.T) {
	f, at := newEarlyFile(t, 64)
	is := f.Images()
	is.ExpectWrites([]memmap.FileRange{
		at(10, 12), at(11, 14), at(30, 31), at(5000, 5001), // the last is nowhere
		{Start: at(50, 51).Start + 1, End: at(50, 52).End}, {Start: at(52, 53).End, End: at(52, 53).Start},
	})
	f.unshareEarly(is.expected)
	want := []memmap.FileRange{at(10, 14), at(30, 31)}
	if got := f.ReadyForWrites(at(0, 64)); !reflect.DeepEqual(got, want) {
		t.Errorf("ready: got %v, want %v", got, want)
	}
	if got := f.ReadyForWrites(at(12, 13)); !reflect.DeepEqual(got, []memmap.FileRange{at(12, 13)}) {
		t.Errorf("ready in one page: got %v", got)
	}
	if got := f.ReadyForWrites(at(14, 30)); got != nil {
		t.Errorf("ready between: got %v", got)
	}
	for n := uint64(0); n < 64; n++ {
		_, imaged := f.FirstImaged(at(n, n+1))
		if ready := n >= 10 && n < 14 || n == 30; imaged == ready {
			t.Errorf("page %d: imaged %v", n, imaged)
		}
	}
	if got := readPages(t, f, at(12, 13)); !bytes.Equal(got, bytes.Repeat([]byte{13}, page)) {
		t.Errorf("page 12 begins with %d", got[0])
	}
	// Whoever is made from this one is told of these too.
	if got := f.EarlyWrites(); !reflect.DeepEqual(got, want) {
		t.Errorf("early: got %v, want %v", got, want)
	}
	// Once pages may be mapped only those who map them may unshare them.
	f.closeEarly()
	f.unshareEarly([]memmap.FileRange{at(40, 41)})
	if _, imaged := f.FirstImaged(at(40, 41)); !imaged {
		t.Error("a page was unshared that may be mapped")
	}
}

func TestWhatIsSaidOfEarlyWritesIsBounded(t *testing.T) {
	var many []memmap.FileRange
	for n := uint64(0); n < 2*maxEarlyWrites; n++ {
		many = append(many, memmap.FileRange{Start: 2 * n * page, End: (2*n + 1) * page})
	}
	if got := len(boundEarly(many)); got > maxEarlyWrites {
		t.Errorf("%d ranges are left", got)
	}
	const large = 4 << 20
	got := boundEarly([]memmap.FileRange{{0, large}, {2 * large, 3 * large}, {4 * large, 4*large + maxEarlyBytes}, {0, 1 << 62}})
	bytes := uint64(0)
	for _, r := range got {
		bytes += r.Length()
	}
	if bytes > maxEarlyBytes {
		t.Errorf("%v are %d bytes, want %d at most", got, bytes, maxEarlyBytes)
	}
	if len(boundEarly([]memmap.FileRange{{0, hostarch.PageSize}})) != 1 {
		t.Error("one page is too much")
	}
}

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
	"context"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// newSparseFile makes a MemoryFile of pages of which those given are not zero, and the others
// have no memory.
func newSparseFile(t *testing.T, pages uint64, data ...uint64) (*MemoryFile, memmap.FileRange) {
	t.Helper()
	f, fr := newTestFile(t, pages)
	for _, n := range data {
		if _, err := unix.Pwrite(f.FD(), bytes.Repeat([]byte{1}, page), int64(fr.Start+n*page)); err != nil {
			t.Fatal(err)
		}
	}
	return f, fr
}

func TestHolesOfAFileAreNotRead(t *testing.T) {
	const inTwo = chunkSize/page - 1 // data that lies in two chunks
	f, fr := newSparseFile(t, 2*chunkSize/page, 0, 3, 4, inTwo, inTwo+1)
	at := func(first, last uint64) memmap.FileRange {
		return memmap.FileRange{fr.Start + first*page, fr.Start + (last+1)*page}
	}
	var data, holes []memmap.FileRange
	f.forEachChunkOfData(fr, func(chunk *chunkInfo, r memmap.FileRange) bool {
		if chunk == nil {
			holes = append(holes, r)
		} else {
			data = append(data, r)
		}
		return true
	})
	if want := []memmap.FileRange{at(0, 0), at(3, 4), at(inTwo, inTwo), at(inTwo+1, inTwo+1)}; !reflect.DeepEqual(data, want) {
		t.Errorf("data: got %v, want %v", data, want)
	}
	if want := []memmap.FileRange{at(1, 2), at(5, inTwo-1), at(inTwo+2, 2*chunkSize/page-1)}; !reflect.DeepEqual(holes, want) {
		t.Errorf("holes: got %v, want %v", holes, want)
	}
	calls := 0
	f.forEachChunkOfData(fr, func(*chunkInfo, memmap.FileRange) bool { calls++; return calls < 2 })
	if calls != 2 {
		t.Errorf("%d calls after the second had had enough", calls)
	}
}

// TestASaveGivesHolesNoMemory: also where zeroes lie beside them.
func TestASaveGivesHolesNoMemory(t *testing.T) {
	f, fr := newSparseFile(t, 4096, 1, 2, 9)
	var st unix.Stat_t
	if err := unix.Fstat(int(f.file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	before := st.Blocks
	var saved bytes.Buffer
	if err := f.SaveTo(context.Background(), &saved, &SaveOpts{}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(int(f.file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks != before {
		t.Errorf("the file takes %d blocks, and %d before it was saved", st.Blocks, before)
	}
	if got := saved.Len(); got < 3*page || got > 5*page {
		t.Errorf("%d bytes were saved of three pages", got)
	}
	if got := f.knownCommittedBytes; got != 3*page {
		t.Errorf("%d bytes are known to have memory, want %d", got, 3*page)
	}
	if fr.Length() != 4096*hostarch.PageSize {
		t.Errorf("%v was allocated", fr)
	}
}

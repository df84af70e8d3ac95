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
	"time"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// TestPagesThatAreTheSameAreImagedAgain: not those that were written to, nor a single one
// between two of these, nor one that was freed; and their memory is given back.
func TestPagesThatAreTheSameAreImagedAgain(t *testing.T) {
	f, at := newEarlyFile(t, 64)
	is := f.Images()
	is.addFile(f)
	if err := f.Unshare(at(0, 64)); err != nil {
		t.Fatal(err)
	}
	if err := f.UpdateUsage(nil); err != nil { // so that it is known that they have memory
		t.Fatal(err)
	}
	changed := map[uint64]bool{0: true, 20: true, 21: true, 30: true, 32: true}
	for n := range changed {
		if _, err := unix.Pwrite(f.FD(), []byte{99}, int64(at(n, n+1).Start)); err != nil {
			t.Fatal(err)
		}
	}
	f.DecRef(at(50, 64))
	const same = 50 - 5 - 1 // page 31 is alone
	if got := is.Reshare(f); got != same*page {
		t.Errorf("%d pages are imaged again, want %d", got/page, same)
	}
	for n := uint64(0); n < 50; n++ {
		_, imaged := f.FirstImaged(at(n, n+1))
		if want := !changed[n] && n != 31; imaged != want {
			t.Errorf("page %d: imaged %v", n, imaged)
		}
		want := bytes.Repeat([]byte{byte(n + 1)}, page)
		if changed[n] {
			want[0] = 99
		}
		if got := readPages(t, f, at(n, n+1)); !bytes.Equal(got, want) {
			t.Errorf("page %d begins with %d", n, got[0])
		}
	}
	if _, imaged := f.FirstImaged(at(50, 64)); imaged {
		t.Error("pages that were freed are imaged")
	}
	deadline, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for is.Usage().Main != same*page {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the memory of %+v is given back, want %d bytes", is.Usage(), same*page)
		}
	}
	if got := is.Reshare(f); got != 0 {
		t.Errorf("at once again %d bytes are imaged", got)
	}
	// And again, when they were unshared again.
	if err := f.Unshare(at(10, 14)); err != nil {
		t.Fatal(err)
	}
	if got := is.Reshare(f); got != 4*page {
		t.Errorf("%d bytes are imaged again, want %d", got, 4*page)
	}
}

// TestAnImageThatCannotBeReadIsLeftAlone: by whoever only wants to compare.
func TestAnImageThatCannotBeReadIsLeftAlone(t *testing.T) {
	f, at := newEarlyFile(t, 8)
	is := f.Images()
	is.addFile(f)
	if err := f.Unshare(at(0, 8)); err != nil {
		t.Fatal(err)
	}
	if err := f.UpdateUsage(nil); err != nil {
		t.Fatal(err)
	}
	var beyond []imagedRange
	for _, r := range f.imaged.former {
		r.off += 8 * page
		beyond = append(beyond, r)
	}
	f.imaged.former = beyond
	if got := is.Reshare(f); got != 0 {
		t.Errorf("%d bytes are imaged", got)
	}
	if got := readPages(t, f, memmap.FileRange{Start: at(7, 8).Start, End: at(7, 8).End}); got[0] != 8 {
		t.Errorf("page 7 begins with %d", got[0])
	}
}

// TestImagesInWhichNoPageLiesAreReleased: and those in which one does are not.
func TestImagesInWhichNoPageLiesAreReleased(t *testing.T) {
	f, at := newEarlyFile(t, 8)
	is := f.Images()
	is.addFile(f)
	dup, err := unix.FcntlInt(uintptr(openTestImage(t, "other", 8, 100).fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewImage("other", dup) // not released by the end of the test
	if err != nil {
		t.Fatal(err)
	}
	is.byID["other"] = other
	f.imaged.set.put(imagedRange{FileRange: at(6, 8), off: 6 * page, image: other})
	if n := is.ReleaseUnused(); n != 0 {
		t.Errorf("%d were released of two that are used", n)
	}
	if err := f.Unshare(at(6, 8)); err != nil {
		t.Fatal(err)
	}
	if n := is.ReleaseUnused(); n != 1 || is.byID["other"] != nil || is.byID["im"] == nil {
		t.Errorf("%d were released, want the other one of %v", n, is.byID)
	}
	if _, err := unix.FcntlInt(uintptr(dup), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("its file is open (%v)", err)
	}
	// It is not compared with any more.
	if err := f.UpdateUsage(nil); err != nil {
		t.Fatal(err)
	}
	if got := is.Reshare(f); got != 0 {
		t.Errorf("%d bytes lie in it again", got)
	}
	if got := readPages(t, f, at(0, 8)); got[0] != 1 || got[6*page] != 106 {
		t.Errorf("pages begin with %d and %d", got[0], got[6*page])
	}
}

// TestMoreThanIsComparedAtOnceIsComparedLater: also of one long range.
func TestMoreThanIsComparedAtOnceIsComparedLater(t *testing.T) {
	f, at := newEarlyFile(t, 64)
	f.Images().addFile(f)
	if err := f.Unshare(at(0, 64)); err != nil {
		t.Fatal(err)
	}
	if err := f.UpdateUsage(nil); err != nil {
		t.Fatal(err)
	}
	var got []memmap.FileRange
	for range 4 {
		left := uint64(20 * page)
		for _, r := range f.findSame(&left) {
			got = append(got, r.FileRange)
		}
	}
	want := []memmap.FileRange{at(0, 20), at(20, 40), at(40, 60), at(60, 64)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

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
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

const page = hostarch.PageSize

// openTestImage makes an Image of pages, each filled with its number from first on.
func openTestImage(t *testing.T, id string, pages int, first byte) *Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pages")
	var b []byte
	for i := range pages {
		b = append(b, bytes.Repeat([]byte{first + byte(i)}, page)...)
	}
	if err := os.WriteFile(path, b, 0o400); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	im, err := NewImage(id, fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(im.Release)
	return im
}

// newTestFile makes a MemoryFile of pages that have no memory yet.
func newTestFile(t *testing.T, pages uint64) (*MemoryFile, memmap.FileRange) {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewMemoryFile(os.NewFile(uintptr(fd), "test"), MemoryFileOpts{DisableMemoryAccounting: true, DisableIMAWorkAround: true})
	if err != nil {
		t.Fatal(err)
	}
	fr, err := f.Allocate(pages*page, AllocOpts{})
	if err != nil {
		t.Fatal(err)
	}
	return f, fr
}

// newImagedFile makes a MemoryFile of pages, all imaged.
func newImagedFile(t *testing.T, im *Image, pages uint64) (*MemoryFile, memmap.FileRange) {
	t.Helper()
	f, fr := newTestFile(t, pages)
	f.imaged.set.put(imagedRange{FileRange: fr, image: im})
	f.hasImaged.Store(true)
	return f, fr
}

func readPages(t *testing.T, f *MemoryFile, fr memmap.FileRange) []byte {
	t.Helper()
	bs, err := f.MapInternal(fr, hostarch.Read)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, fr.Length())
	if _, err := safemem.CopySeq(safemem.BlockSeqOf(safemem.BlockFromSafeSlice(b)), bs); err != nil {
		t.Fatal(err)
	}
	return b
}

// firsts are the first bytes of pages.
func firsts(b []byte) (out []byte) {
	for i := 0; i < len(b); i += page {
		out = append(out, b[i])
	}
	return out
}

// held returns how many bytes the host file takes.
func held(t *testing.T, f *MemoryFile) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(f.FD(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestImagedPagesAreReadWhereTheyLie(t *testing.T) {
	f, fr := newImagedFile(t, openTestImage(t, "a", 8, 1), 8)
	if got, want := firsts(readPages(t, f, fr)), []byte{1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := held(t, f); n != 0 {
		t.Errorf("reading took %d bytes of the host file", n)
	}
	if usage, err := f.TotalUsage(); err != nil || usage != 8*page {
		t.Errorf("usage is %d (%v), want what the pages come to, %d", usage, err, 8*page)
	}
}

func TestAWriteCopiesOnlyWhatItIsAbout(t *testing.T) {
	for name, write := range map[string]func(f *MemoryFile, fr memmap.FileRange) error{
		"by mapping": func(f *MemoryFile, fr memmap.FileRange) error {
			bs, err := f.MapInternal(fr, hostarch.Write)
			if err == nil {
				_, err = safemem.ZeroSeq(bs)
			}
			return err
		},
		"by descriptor": func(f *MemoryFile, fr memmap.FileRange) error {
			fd, err := f.DataFD(fr)
			if err == nil {
				_, err = unix.Pwrite(fd, make([]byte, fr.Length()), int64(fr.Start))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			im := openTestImage(t, "a", 8, 1)
			f, fr := newImagedFile(t, im, 8)
			// A part of a page: the rest must be what it was.
			if err := write(f, memmap.FileRange{Start: fr.Start + 3*page + 100, End: fr.Start + 4*page + 100}); err != nil {
				t.Fatal(err)
			}
			got := readPages(t, f, fr)
			want := bytes.Clone(im.data)
			clear(want[3*page+100 : 4*page+100])
			if !bytes.Equal(got, want) {
				t.Errorf("pages begin with %v, want %v", firsts(got), firsts(want))
			}
			if n := held(t, f); n != 2*page {
				t.Errorf("it took %d bytes, want %d", n, 2*page)
			}
			if bytes.Equal(im.data, want) {
				t.Error("the image was written to")
			}
		})
	}
}

func TestPagesThatAreFreedAreImagedNoMore(t *testing.T) {
	f, fr := newImagedFile(t, openTestImage(t, "a", 8, 1), 8)
	f.Decommit(memmap.FileRange{Start: fr.Start, End: fr.Start + 2*page})
	if got, want := firsts(readPages(t, f, fr)), []byte{0, 0, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
		t.Errorf("after a decommit: got %v, want %v", got, want)
	}
	f.DecRef(memmap.FileRange{Start: fr.Start + 6*page, End: fr.End})
	if got, ok := f.FirstImaged(memmap.FileRange{Start: fr.Start, End: fr.End}); !ok || got.Start != fr.Start+2*page || got.End != fr.Start+6*page {
		t.Errorf("imaged are %v (%t)", got, ok)
	}
}

func TestPiecesAreWhereBytesAre(t *testing.T) {
	im := openTestImage(t, "a", 8, 1)
	f, fr := newImagedFile(t, im, 8)
	if err := f.Unshare(memmap.FileRange{Start: fr.Start + 2*page, End: fr.Start + 3*page}); err != nil {
		t.Fatal(err)
	}
	at := func(start, end int, file memmap.File, off uint64) Piece {
		return Piece{memmap.FileRange{Start: fr.Start + uint64(start)*page, End: fr.Start + uint64(end)*page}, file, off}
	}
	want := []Piece{at(0, 2, im, 0), at(2, 3, f, fr.Start+2*page), at(3, 8, im, 3*page)}
	if got := f.Pieces(fr); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestWhatIsUnsharedAtOnceGrowsWithSequentialWritesAndWithPieces(t *testing.T) {
	const pages = 4 << 20 / page
	f, fr := newImagedFile(t, openTestImage(t, "a", pages, 0), pages)
	at := fr.Start + 1<<20
	var sizes []uint64
	for range 4 {
		u := f.UnshareUnit(memmap.FileRange{Start: at, End: at + page}, fr)
		sizes, at = append(sizes, u.Length()), u.End
	}
	if want := []uint64{minUnshare, 2 * minUnshare, 4 * minUnshare, 8 * minUnshare}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("sequential writes unshare %v, want %v", sizes, want)
	}
	scattered := memmap.FileRange{Start: fr.Start + 5*page, End: fr.Start + 6*page}
	if u := f.UnshareUnit(scattered, scattered); u != scattered {
		t.Errorf("it unshares %v, more than it may: %v", u, scattered)
	}
	for n, want := range map[int]uint64{fewRanges + 1: someUnshare, manyRanges + 1: maxUnshare} {
		f.imaged.lastUnshared = 0
		f.imaged.set.ranges = make([]imagedRange, n)
		if u := f.UnshareUnit(scattered, memmap.FileRange{End: 64 << 20}); u.Length() != want {
			t.Errorf("with %d pieces it unshares %d bytes, want %d", n, u.Length(), want)
		}
	}
}

func TestWhatWasSavedIsAdoptedOrForgotten(t *testing.T) {
	old := openTestImage(t, "old", 8, 1)
	f, fr := newImagedFile(t, old, 8)
	is, err := NewImages(old, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.SetImages(is)
	is.addFile(f)
	save := func(id string) {
		t.Helper()
		if err := is.BeginSave(id, 0); err != nil {
			t.Fatal(err)
		}
		s, err := f.beginSaveImaged(&SaveOpts{PagesFile: &AsyncPagesFileSave{}, Images: is})
		if err != nil {
			t.Fatal(err)
		}
		var written []memmap.FileRange
		s.split(fr, 0, func(fr memmap.FileRange) { written = append(written, fr) })
		s.done()
		is.KeepSaved()
		if want := (memmap.FileRange{Start: fr.Start, End: fr.Start + 2*page}); len(written) != 1 || written[0] != want {
			t.Errorf("%s: written were %v, want %v", id, written, want)
		}
		table := is.Table()
		if table == nil || !reflect.DeepEqual(table.IDs, []string{"old"}) || len(table.Files) != 1 ||
			!reflect.DeepEqual(table.Files[0].Entries, []ImageTableEntry{{Start: fr.Start + 2*page, End: fr.End, Image: 1, Off: 2 * page}}) {
			t.Errorf("%s: the table is %+v", id, table)
		}
	}
	if err := f.Unshare(memmap.FileRange{Start: fr.Start, End: fr.Start + 2*page}); err != nil {
		t.Fatal(err)
	}
	save("lost")
	if err := is.Adopt(openTestImage(t, "other", 2, 1)); err == nil {
		t.Error("another image was adopted")
	}
	// It was not adopted: the next one saves the same again.
	save("next")
	short := openTestImage(t, "next", 1, 1)
	if err := is.Adopt(short); err == nil {
		t.Error("one that is too short was adopted")
	}
	save("again")
	im := openTestImage(t, "again", 2, 1)
	if err := is.Adopt(im); err != nil {
		t.Fatal(err)
	}
	if got, want := firsts(readPages(t, f, fr)), []byte{1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f.punchImaged(im)
	if n := held(t, f); n != 0 {
		t.Errorf("%d bytes were not given back", n)
	}
	if got, want := firsts(readPages(t, f, fr)), []byte{1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
		t.Errorf("when it was given back: got %v, want %v", got, want)
	}
}

func TestThoseWithTheFewestPagesAreSavedOnceMoreWhereImagesAreTooMany(t *testing.T) {
	big := openTestImage(t, "0", 8, 1)
	f, fr := newImagedFile(t, big, 8)
	is, err := NewImages(big, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.SetImages(is)
	is.addFile(f)
	for i, id := range []string{"1", "2", "3", "4"} {
		at := fr.Start + uint64(i)*page
		f.imaged.set.put(imagedRange{FileRange: memmap.FileRange{Start: at, End: at + page}, image: openTestImage(t, id, 1, byte(i+1))})
	}
	for most, want := range map[int]int{0: 0, 5: 0, 4: 3, 3: 3, 2: 4, 1: 4} {
		is.mu.Lock()
		fold := is.foldLocked(most)
		is.mu.Unlock()
		if _, ok := fold[big]; ok || len(fold) != want {
			t.Errorf("of five at most %d: %d are saved once more (the largest: %t), want %d", most, len(fold), ok, want)
		}
	}
}

func TestAnImageThatCouldBeWrittenToIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(path, make([]byte, page), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewImage("a", fd); err == nil || !strings.Contains(err.Error(), "reading only") {
		t.Errorf("got %v", err)
	}
}

func TestAPageThatCannotBeReadEndsTheSandboxAndSaysWhich(t *testing.T) {
	for name, touch := range map[string]func(f *MemoryFile, fr memmap.FileRange){
		"read by the sentry": func(f *MemoryFile, fr memmap.FileRange) {
			bs, _ := f.MapInternal(fr, hostarch.Read)
			safemem.CopySeq(safemem.BlockSeqOf(safemem.BlockFromSafeSlice(make([]byte, fr.Length()))), bs)
		},
		"copied":                  func(f *MemoryFile, fr memmap.FileRange) { f.Unshare(fr) },
		"read by the application": func(f *MemoryFile, fr memmap.FileRange) { f.CheckImaged(fr.End - page) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pages")
			if err := os.WriteFile(path, make([]byte, 8*page), 0o600); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			im, err := NewImage("snap", fd)
			if err != nil {
				t.Fatal(err)
			}
			f, fr := newImagedFile(t, im, 8)
			if err := os.Truncate(path, 4*page); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if r, ok := recover().(string); !ok || !strings.Contains(r, `image "snap" cannot be read`) {
					t.Errorf("got %q", r)
				}
			}()
			touch(f, fr)
		})
	}
}

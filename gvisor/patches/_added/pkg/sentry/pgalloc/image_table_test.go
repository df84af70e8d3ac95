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

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

func testTable() *ImageTable {
	return &ImageTable{
		IDs: []string{"one", "two"},
		Files: []ImageTableFile{
			{Key: ":", Entries: []ImageTableEntry{{Start: 0, End: page, Image: 1, Off: 3 * page}, {Start: 4 * page, End: 9 * page, Image: 0, Off: 0}}},
			{Key: "c:/", Entries: []ImageTableEntry{{Start: page, End: 2 * page, Image: 2}}},
		},
	}
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	var b bytes.Buffer
	if err := testTable().Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := ReadImageTable(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, testTable()) {
		t.Errorf("got %+v (%v)", got, err)
	}
	for n := range b.Len() {
		if _, err := ReadImageTable(bytes.NewReader(b.Bytes()[:n])); err == nil {
			t.Errorf("the first %d of %d bytes are taken for a table", n, b.Len())
		}
	}
	if _, err := ReadImageTable(bytes.NewReader(append(b.Bytes(), 0))); err == nil {
		t.Error("with a byte more it is taken for a table")
	}
}

func TestATableThatCannotBeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*ImageTable){
		"image":    func(t *ImageTable) { t.Files[0].Entries[0].Image = 3 },
		"order":    func(t *ImageTable) { e := t.Files[0].Entries; e[0], e[1] = e[1], e[0] },
		"overlap":  func(t *ImageTable) { t.Files[0].Entries[1].Start = 0 },
		"empty":    func(t *ImageTable) { t.Files[0].Entries[0].End = 0 },
		"unpaged":  func(t *ImageTable) { t.Files[0].Entries[0].Off = 1 },
		"overflow": func(t *ImageTable) { t.Files[0].Entries[1].Off = 1<<63 - page },
		"huge":     func(t *ImageTable) { t.Files[1].Entries[0].End = 1 << 63 },
	} {
		table := testTable()
		spoil(table)
		var b bytes.Buffer
		if err := table.Write(&b); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadImageTable(&b); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestPagesThatNoEntryHasLieOneAfterTheOther(t *testing.T) {
	one, two, own := openTestImage(t, "one", 16, 0), openTestImage(t, "two", 16, 0), openTestImage(t, "own", 16, 0)
	is, err := NewImages(own, testTable(), []*Image{one, two})
	if err != nil {
		t.Fatal(err)
	}
	got, n := is.imagedOf(is.table.of(":"), memmap.FileRange{Start: 0, End: 6 * page}, 5*page)
	want := []imagedRange{
		{FileRange: memmap.FileRange{Start: 0, End: page}, image: one, off: 3 * page},
		{FileRange: memmap.FileRange{Start: page, End: 4 * page}, image: own, off: 5 * page},
		{FileRange: memmap.FileRange{Start: 4 * page, End: 6 * page}, image: own, off: 0},
	}
	if !reflect.DeepEqual(got, want) || n != 3*page {
		t.Errorf("got %+v, %d bytes\nwant %+v", got, n, want)
	}
	if _, err := NewImages(own, testTable(), []*Image{one}); err == nil {
		t.Error("an image that the table names was not given, and nobody noticed")
	}
}

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
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// An ImageTable belongs to a checkpoint and says which pages of its MemoryFiles are not to be
// looked for in its pages file at the place that follows from the MemoryFile's metadata, but
// elsewhere.
//
// In a file it is, all numbers little-endian:
//
//	magic     8 bytes
//	uint32    number of IDs
//	  uint32  length of an ID, and the ID
//	uint32    number of files
//	  uint32  length of a key, and the key
//	  uint64  number of entries
//	    uint64  start, end: bytes of the MemoryFile
//	    uint32  image: 0 is the checkpoint's own pages file, n the one called IDs[n-1]
//	    uint32  0
//	    uint64  off: where the range begins in that pages file, in bytes
type ImageTable struct {
	IDs   []string
	Files []ImageTableFile
}

// An ImageTableFile is the part of an ImageTable about one MemoryFile.
type ImageTableFile struct {
	// Key is the MemoryFile's ResourceID as a string.
	Key string

	// Entries are ordered, and do not overlap.
	Entries []ImageTableEntry
}

// An ImageTableEntry is a range of a MemoryFile, page-aligned, and where it is.
type ImageTableEntry struct {
	Start, End uint64
	Image      uint32
	_          uint32
	Off        uint64
}

var imageTableMagic = [8]byte{'C', 'U', 'B', 'E', 'P', 'T', 'B', '1'}

const (
	maxImageTableIDs     = 1024
	maxImageTableFiles   = 1024
	maxImageTableName    = 4096
	maxImageTableEntries = 1 << 24
)

// add adds the part of a MemoryFile.
func (t *ImageTable) add(key string, rs []imagedRange) {
	if len(rs) == 0 {
		return
	}
	file := ImageTableFile{Key: key, Entries: make([]ImageTableEntry, 0, len(rs))}
	for _, r := range rs {
		file.Entries = append(file.Entries, ImageTableEntry{Start: r.Start, End: r.End, Image: t.index(r.image.id), Off: r.off})
	}
	t.Files = append(t.Files, file)
}

func (t *ImageTable) index(id string) uint32 {
	for i := range t.IDs {
		if t.IDs[i] == id {
			return uint32(i + 1)
		}
	}
	t.IDs = append(t.IDs, id)
	return uint32(len(t.IDs))
}

// Write writes t to w.
func (t *ImageTable) Write(w io.Writer) error {
	bw := bufio.NewWriterSize(w, 1<<20)
	var buf [8]byte
	u32 := func(n int) { bw.Write(binary.LittleEndian.AppendUint32(buf[:0], uint32(n))) }
	u64 := func(n uint64) { bw.Write(binary.LittleEndian.AppendUint64(buf[:0], n)) }
	text := func(s string) { u32(len(s)); bw.WriteString(s) }
	bw.Write(imageTableMagic[:])
	u32(len(t.IDs))
	for _, id := range t.IDs {
		text(id)
	}
	u32(len(t.Files))
	for _, f := range t.Files {
		text(f.Key)
		u64(uint64(len(f.Entries)))
		for _, e := range f.Entries {
			u64(e.Start)
			u64(e.End)
			u32(int(e.Image))
			u32(0)
			u64(e.Off)
		}
	}
	return bw.Flush() // returns the first error of all
}

// ReadImageTable reads what ImageTable.Write wrote, and refuses everything else.
func ReadImageTable(r io.Reader) (*ImageTable, error) {
	d := imageTableReader{r: bufio.NewReaderSize(r, 1<<20)}
	var magic [8]byte
	d.full(magic[:])
	if d.err == nil && magic != imageTableMagic {
		return nil, fmt.Errorf("this is no table of images")
	}
	t := &ImageTable{}
	for range d.count(maxImageTableIDs) {
		t.IDs = append(t.IDs, d.text())
	}
	for range d.count(maxImageTableFiles) {
		t.Files = append(t.Files, d.file(len(t.IDs)))
	}
	if d.err == nil {
		if _, err := d.r.ReadByte(); err != io.EOF {
			d.fail("there is more behind it")
		}
	}
	if d.err != nil {
		return nil, fmt.Errorf("table of images: %w", d.err)
	}
	return t, nil
}

// imageTableReader reads until the first error.
type imageTableReader struct {
	r   *bufio.Reader
	err error
}

func (d *imageTableReader) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *imageTableReader) full(b []byte) {
	if d.err != nil {
		clear(b)
		return
	}
	if _, err := io.ReadFull(d.r, b); err != nil {
		clear(b)
		d.err = fmt.Errorf("it ends too early: %w", err)
	}
}

func (d *imageTableReader) u32() uint32 {
	var b [4]byte
	d.full(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (d *imageTableReader) u64() uint64 {
	var b [8]byte
	d.full(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func (d *imageTableReader) count(most uint64) uint64 {
	n := uint64(d.u32())
	if n > most {
		d.fail("%d of one kind are too many", n)
	}
	if d.err != nil {
		return 0
	}
	return n
}

func (d *imageTableReader) text() string {
	b := make([]byte, d.count(maxImageTableName))
	d.full(b)
	return string(b)
}

func (d *imageTableReader) file(images int) (f ImageTableFile) {
	f.Key = d.text()
	n := d.u64()
	if n > maxImageTableEntries {
		d.fail("%d entries are too many", n)
	}
	last := uint64(0)
	for range n {
		e := ImageTableEntry{Start: d.u64(), End: d.u64(), Image: d.u32()}
		zero := d.u32()
		e.Off = d.u64()
		if d.err != nil {
			return f
		}
		if e.Start < last || e.End <= e.Start || e.End > math.MaxInt64 || uint64(e.Image) > uint64(images) || zero != 0 ||
			e.Off > math.MaxInt64-(e.End-e.Start) || (e.Start|e.End|e.Off)%hostarch.PageSize != 0 {
			d.fail("%#x-%#x in image %d at %#x is no entry", e.Start, e.End, e.Image, e.Off)
			return f
		}
		last = e.End
		f.Entries = append(f.Entries, e)
	}
	return f
}

// of returns the entries of a MemoryFile.
func (t *ImageTable) of(key string) []ImageTableEntry {
	if t == nil {
		return nil
	}
	for i := range t.Files {
		if t.Files[i].Key == key {
			return t.Files[i].Entries
		}
	}
	return nil
}

// imageOf returns the Image that an entry is about.
func (is *Images) imageOf(e ImageTableEntry) *Image {
	if e.Image == 0 {
		return is.own
	}
	return is.byID[is.table.IDs[e.Image-1]]
}

// imagedOf returns where the pages in fr lie, if own says that those which are in no entry lie
// one after the other in the pages file at off; and how many bytes these are.
func (is *Images) imagedOf(entries []ImageTableEntry, fr memmap.FileRange, off uint64) (rs []imagedRange, own uint64) {
	at := fr.Start
	fill := func(end uint64) {
		if end > at {
			rs = append(rs, imagedRange{FileRange: memmap.FileRange{Start: at, End: end}, off: off + own, image: is.own})
			own += end - at
		}
	}
	for _, e := range entriesIn(entries, fr) {
		r := imagedRange{FileRange: memmap.FileRange{Start: e.Start, End: e.End}, off: e.Off, image: is.imageOf(e)}.cut(fr)
		fill(r.Start)
		rs = append(rs, r)
		at = r.End
	}
	fill(fr.End)
	return rs, own
}

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
	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// forEachChunkOfData is like forEachChunk, but only for what has memory in the host file. fn
// is called for what lies between with chunk nil. Nothing of fr may be imaged.
//
// To read a page without memory would give it some.
func (f *MemoryFile) forEachChunkOfData(fr memmap.FileRange, fn func(chunk *chunkInfo, chunkFR memmap.FileRange) bool) {
	for fr.Length() != 0 {
		data := f.nextData(fr)
		if hole := (memmap.FileRange{fr.Start, data.Start}); hole.Length() != 0 && !fn(nil, hole) {
			return
		}
		goOn := true
		if data.Length() != 0 {
			f.forEachChunk(data, func(chunk *chunkInfo, chunkFR memmap.FileRange) bool {
				goOn = fn(chunk, chunkFR)
				return goOn
			})
		}
		if !goOn {
			return
		}
		fr.Start = data.End
	}
}

// nextData returns the first range of whole pages in fr that has memory in the host file. It
// is empty, at the end of fr, if there is none, and all of fr if the host does not tell. Of
// files on a disk it is not asked: some file systems do not know of what is mapped and dirty.
func (f *MemoryFile) nextData(fr memmap.FileRange) memmap.FileRange {
	if f.opts.DiskBackedFile {
		return fr
	}
	fd := int(f.file.Fd())
	start, err := unix.Seek(fd, int64(fr.Start), unix.SEEK_DATA)
	if err == unix.ENXIO || err == nil && uint64(start) >= fr.End {
		return memmap.FileRange{fr.End, fr.End}
	}
	if err != nil {
		return fr
	}
	end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil {
		return fr
	}
	data := memmap.FileRange{
		hostarch.PageRoundDown(uint64(start)),
		hostarch.MustPageRoundUp(uint64(end)),
	}
	return data.Intersect(fr)
}

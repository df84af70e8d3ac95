// Package pagetable reads and writes the table of an image: where pages of its memory
// and of its files lie that are not in its own pages file at the place that follows
// from the kernel's state, but in the pages file of another image, a base.
//
// The form, little endian, without padding:
//
//	magic "CUBEPTB1"
//	u32 number of names; each name: u32 length, bytes
//	u32 number of memory files; each of them:
//		u32 length, bytes of its key
//		u64 number of entries; each entry:
//			u64 start, u64 end   bytes in the memory file
//			u32 name             0: the image's own pages file; i+1: that of names[i]
//			u32 zero
//			u64 offset           in that pages file, in bytes
//
// Start, end and offset are multiples of PageSize; the entries of a memory file are in
// order and do not overlap. What is in no entry lies in the own pages file. There is no
// checksum: whoever keeps the file sums it.
package pagetable

import (
	"fmt"
	"slices"
)

// PageSize is that of the memory, in bytes.
const PageSize = 4096

// Bounds of what is read and written.
const (
	MaxNames   = 127 // pages files that the sentry can be handed beside the own one
	MaxName    = 128 // bytes
	MaxFiles   = 1024
	MaxKey     = 4096    // bytes
	MaxEntries = 1 << 20 // of all memory files together
	// MaxOffset bounds start, end and the end of what an entry means, in bytes.
	MaxOffset = 1 << 56
)

// Table is one.
type Table struct {
	// Names are those of the bases, each once, nearest first.
	Names []string
	Files []File
}

// File is a memory file of the sentry.
type File struct {
	Key     string
	Entries []Entry
}

// Entry says where the bytes [Start, End) of a memory file lie.
type Entry struct {
	Start, End uint64
	// Name is 0 for the image's own pages file and i+1 for that of Names[i].
	Name   uint32
	Offset uint64
}

// Len is how many bytes it speaks of.
func (e Entry) Len() uint64 { return e.End - e.Start }

// continues reports whether e speaks of what follows what p speaks of, in both files.
func (e Entry) continues(p Entry) bool {
	return p.End == e.Start && p.Name == e.Name && p.Offset+p.Len() == e.Offset
}

// Check reports what Write does not write and Read does not read.
func (t Table) Check() error {
	if len(t.Names) > MaxNames {
		return fmt.Errorf("it has %d names, %d are the most", len(t.Names), MaxNames)
	}
	if len(t.Files) > MaxFiles {
		return fmt.Errorf("it has %d memory files, %d are the most", len(t.Files), MaxFiles)
	}
	names, keys := map[string]bool{}, map[string]bool{}
	for _, name := range t.Names {
		if name == "" || len(name) > MaxName || names[name] {
			return fmt.Errorf("name %.140q is empty, too long, or there twice", name)
		}
		names[name] = true
	}
	left := MaxEntries
	for _, f := range t.Files {
		if f.Key == "" || len(f.Key) > MaxKey || keys[f.Key] {
			return fmt.Errorf("memory file %.140q is empty, too long, or there twice", f.Key)
		}
		keys[f.Key] = true
		if left -= len(f.Entries); left < 0 {
			return fmt.Errorf("it has more than %d entries", MaxEntries)
		}
		if err := f.check(len(t.Names)); err != nil {
			return fmt.Errorf("memory file %.140q: %w", f.Key, err)
		}
	}
	return nil
}

func (f File) check(names int) error {
	var last uint64
	for i, e := range f.Entries {
		switch {
		case (e.Start|e.End|e.Offset)%PageSize != 0:
			return fmt.Errorf("entry %d is not of whole pages", i)
		case e.Start >= e.End || e.End > MaxOffset:
			return fmt.Errorf("entry %d is from %d to %d", i, e.Start, e.End)
		case e.Offset > MaxOffset-e.Len():
			return fmt.Errorf("entry %d lies at %d", i, e.Offset)
		case e.Start < last:
			return fmt.Errorf("entry %d begins at %d, the one before ends at %d", i, e.Start, last)
		case uint64(e.Name) > uint64(names):
			return fmt.Errorf("entry %d has name %d of %d", i, e.Name, names)
		}
		last = e.End
	}
	return nil
}

// Pruned is the same table without names that no entry has and without memory files
// that have no entries; neighbours that are one are joined.
func (t Table) Pruned() Table {
	used := make([]bool, len(t.Names)+1)
	for _, f := range t.Files {
		for _, e := range f.Entries {
			used[e.Name] = true
		}
	}
	var out Table
	index := make([]uint32, len(t.Names)+1)
	for i, name := range t.Names {
		if used[i+1] {
			out.Names = append(out.Names, name)
			index[i+1] = uint32(len(out.Names))
		}
	}
	for _, f := range t.Files {
		var entries []Entry
		for _, e := range f.Entries {
			e.Name = index[e.Name]
			if n := len(entries); n > 0 && e.continues(entries[n-1]) {
				entries[n-1].End = e.End
			} else {
				entries = append(entries, e)
			}
		}
		if len(entries) > 0 {
			out.Files = append(out.Files, File{f.Key, entries})
		}
	}
	return out
}

// Equal reports whether two tables are the same.
func (t Table) Equal(o Table) bool {
	return slices.Equal(t.Names, o.Names) && slices.EqualFunc(t.Files, o.Files, func(a, b File) bool {
		return a.Key == b.Key && slices.Equal(a.Entries, b.Entries)
	})
}

// Empty reports whether it has no entries.
func (t Table) Empty() bool {
	return !slices.ContainsFunc(t.Files, func(f File) bool { return len(f.Entries) > 0 })
}

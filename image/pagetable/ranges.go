package pagetable

import (
	"cmp"
	"slices"
)

// Range is the bytes [From, To) of a pages file.
type Range struct{ From, To uint64 }

// Len is its length in bytes.
func (r Range) Len() uint64 { return r.To - r.From }

// Union is the ranges in order, joined where they meet.
func Union(ranges []Range) []Range {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	var out []Range
	for _, r := range ranges {
		if n := len(out); n > 0 && r.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, r.To)
		} else if r.Len() > 0 {
			out = append(out, r)
		}
	}
	return out
}

// Len is how many bytes ranges have that do not overlap.
func Len(ranges []Range) (bytes uint64) {
	for _, r := range ranges {
		bytes += r.Len()
	}
	return bytes
}

// Ranges are what the table names of each pages file, by the file's name ("" for the
// own one), in order and joined.
func (t Table) Ranges() map[string][]Range {
	out := map[string][]Range{}
	for _, f := range t.Files {
		for _, e := range f.Entries {
			name := t.name(e)
			out[name] = append(out[name], Range{e.Offset, e.Offset + e.Len()})
		}
	}
	for name, ranges := range out {
		out[name] = Union(ranges)
	}
	return out
}

func (t Table) name(e Entry) string {
	if e.Name == 0 {
		return ""
	}
	return t.Names[e.Name-1]
}

// Bytes is how much of the memory lies in the pages file of each name, in the order of
// Names. Bytes that several places of the memory have count for each.
func (t Table) Bytes() []int64 {
	out := make([]int64, len(t.Names))
	for _, f := range t.Files {
		for _, e := range f.Entries {
			if e.Name > 0 {
				out[e.Name-1] += int64(e.Len())
			}
		}
	}
	return out
}

// Copies is a table that says of a pages file which ranges of others it has copies of:
// the keys of its memory files are the names of the others, and all its entries are in
// its own pages file.
func Copies(of map[string][]Range) Table {
	var t Table
	var at uint64
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f := File{Key: name}
		for _, r := range Union(of[name]) {
			f.Entries = append(f.Entries, Entry{Start: r.From, End: r.To, Offset: at})
			at += r.Len()
		}
		if len(f.Entries) > 0 {
			t.Files = append(t.Files, f)
		}
	}
	return t
}

// Moved is the table with the copies that the pages file of a name has in the place of
// what it has copies of. What was not copied stays where it is.
func (t Table) Moved(name string, copies Table) Table {
	out := Table{Names: t.Names}
	to := slices.Index(out.Names, name)
	if to < 0 {
		to = len(out.Names)
		out.Names = append(slices.Clip(out.Names), name)
	}
	of := map[string][]Entry{}
	for _, f := range copies.Files {
		of[f.Key] = f.Entries
	}
	for _, f := range t.Files {
		moved := File{Key: f.Key}
		for _, e := range f.Entries {
			if e.Name == 0 {
				moved.Entries = append(moved.Entries, e)
			} else {
				moved.Entries = append(moved.Entries, move(e, of[t.name(e)], uint32(to+1))...)
			}
		}
		out.Files = append(out.Files, moved)
	}
	return out.Pruned()
}

// move cuts an entry where its bytes have been copied, and where not.
func move(e Entry, copies []Entry, to uint32) (out []Entry) {
	// The first copy that ends behind the beginning.
	i, _ := slices.BinarySearchFunc(copies, e.Offset+1, func(c Entry, at uint64) int { return cmp.Compare(c.End, at) })
	take := func(n uint64, name uint32, offset uint64) {
		out = append(out, Entry{e.Start, e.Start + n, name, offset})
		e.Start, e.Offset = e.Start+n, e.Offset+n
	}
	for ; e.Start < e.End && i < len(copies) && copies[i].Start < e.Offset+e.Len(); i++ {
		c := copies[i]
		if c.Start > e.Offset {
			take(c.Start-e.Offset, e.Name, e.Offset)
		}
		take(min(c.End-e.Offset, e.Len()), to, c.Offset+e.Offset-c.Start)
	}
	if e.Start < e.End {
		out = append(out, e)
	}
	return out
}

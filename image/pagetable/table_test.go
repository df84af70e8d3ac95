package pagetable

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const page = PageSize

// sample has two bases, an entry in the own pages file, and two memory files.
func sample() Table {
	return Table{Names: []string{"near", "far"}, Files: []File{
		{"main", []Entry{{0, 4 * page, 1, 8 * page}, {4 * page, 5 * page, 0, 0}, {9 * page, 12 * page, 2, page}}},
		{"tmpfs", []Entry{{page, 2 * page, 2, 0}}},
	}}
}

func encoded(t *testing.T, table Table) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, table); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []Table{{}, sample(), {Names: []string{"a"}}, {Files: []File{{"k", nil}}}} {
		got, err := Read(bytes.NewReader(encoded(t, want)))
		if err != nil || !got.Equal(want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestTheFormIsThis(t *testing.T) {
	got := hex.EncodeToString(encoded(t, Table{Names: []string{"ab"}, Files: []File{{"k", []Entry{{page, 3 * page, 1, 2 * page}}}}}))
	want := strings.Join([]string{hex.EncodeToString([]byte("CUBEPTB1")),
		"01000000", "02000000", "6162",
		"01000000", "01000000", "6b", "0100000000000000",
		"0010000000000000", "0030000000000000", "01000000", "00000000", "0020000000000000"}, "")
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWhatNobodyWritesIsNotRead(t *testing.T) {
	whole := encoded(t, sample())
	for n := range whole {
		if _, err := Read(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("the first %d of %d bytes are read", n, len(whole))
		}
	}
	if _, err := Read(bytes.NewReader(append(slices.Clone(whole), 0))); err == nil {
		t.Error("what follows it is not seen")
	}
	for what, spoil := range map[string]func(*Table){
		"a name twice":          func(t *Table) { t.Names[1] = t.Names[0] },
		"a name of nothing":     func(t *Table) { t.Names[1] = "" },
		"a long name":           func(t *Table) { t.Names[1] = strings.Repeat("x", MaxName+1) },
		"too many names":        func(t *Table) { t.Names = make([]string, MaxNames+1) },
		"a key twice":           func(t *Table) { t.Files[1].Key = t.Files[0].Key },
		"a name that is none":   func(t *Table) { t.Files[0].Entries[0].Name = 3 },
		"half a page":           func(t *Table) { t.Files[0].Entries[0].End += 1 },
		"half a page of offset": func(t *Table) { t.Files[0].Entries[0].Offset += 512 },
		"nothing":               func(t *Table) { t.Files[0].Entries[0].End = 0 },
		"an overlap":            func(t *Table) { t.Files[0].Entries[0].End = 5 * page },
		"another order":         func(t *Table) { e := t.Files[0].Entries; e[0], e[1] = e[1], e[0] },
		"beyond all":            func(t *Table) { t.Files[1].Entries[0].End = MaxOffset + page },
		"an offset that turns":  func(t *Table) { t.Files[1].Entries[0].Offset = ^uint64(0) - page + 1 },
	} {
		table := sample()
		spoil(&table)
		if err := Write(&bytes.Buffer{}, table); err == nil {
			t.Errorf("%s: it is written", what)
		}
	}
}

func TestATableIsPrunedOfWhatItDoesNotNeed(t *testing.T) {
	table := Table{Names: []string{"a", "unused", "b"}, Files: []File{
		{"main", []Entry{{0, page, 1, 0}, {page, 2 * page, 1, page}, {2 * page, 3 * page, 3, 2 * page}, {4 * page, 5 * page, 3, 3 * page}}},
		{"none", nil},
	}}
	want := Table{Names: []string{"a", "b"}, Files: []File{
		{"main", []Entry{{0, 2 * page, 1, 0}, {2 * page, 3 * page, 2, 2 * page}, {4 * page, 5 * page, 2, 3 * page}}}}}
	if got := table.Pruned(); !got.Equal(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatATableNamesOfEachFile(t *testing.T) {
	got := sample().Ranges()
	want := map[string][]Range{"": {{0, page}}, "near": {{8 * page, 12 * page}}, "far": {{0, 4 * page}}}
	for name := range want {
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%q: got %v, want %v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := sample().Bytes(); !slices.Equal(got, []int64{4 * page, 4 * page}) {
		t.Errorf("got %v", got)
	}
}

// disks are pages files with random content, by their names.
type disks map[string][]byte

// memory is what a table makes of pages files: the content of each memory file where
// the table has an entry.
func (d disks) memory(t Table) map[string]map[uint64]string {
	out := map[string]map[uint64]string{}
	for _, f := range t.Files {
		out[f.Key] = map[uint64]string{}
		for _, e := range f.Entries {
			for at := uint64(0); at < e.Len(); at += page {
				out[f.Key][e.Start+at] = string(d[t.name(e)][e.Offset+at:][:8])
			}
		}
	}
	return out
}

// copied adds the pages file that a table of copies describes.
func (d disks) copied(name string, copies Table) {
	var b []byte
	for _, f := range copies.Files {
		for _, e := range f.Entries {
			b = append(b, d[f.Key][e.Start:e.End]...)
		}
	}
	d[name] = b
}

func TestWhatIsMovedIsTheSameMemory(t *testing.T) {
	const pages = 32
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		d := disks{}
		names := []string{"a", "b", "c"}
		for _, name := range append(names, "") {
			d[name] = make([]byte, pages*page)
			for at := 0; at < len(d[name]); at += page {
				binary.LittleEndian.PutUint64(d[name][at:], r.Uint64())
			}
		}
		table := Table{Names: names}
		for _, key := range []string{"main", "tmpfs"} {
			f := File{Key: key}
			for at := uint64(0); at < 100; {
				n := 1 + r.Uint64N(6)
				f.Entries = append(f.Entries, Entry{at * page, (at + n) * page, r.Uint32N(4), r.Uint64N(pages-n+1) * page})
				at += n + r.Uint64N(3)
			}
			table.Files = append(table.Files, f)
		}
		// All that the table names of one base, and a part of another.
		copies := Copies(map[string][]Range{"a": table.Ranges()["a"], "b": {{4 * page, 9 * page}, {12 * page, 14 * page}}})
		d.copied("copy", copies)
		moved := table.Moved("copy", copies)
		if err := moved.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if slices.Contains(moved.Names, "a") {
			t.Fatalf("seed %d: what was copied whole is still named: %v", seed, moved.Names)
		}
		got, want := d.memory(moved), d.memory(table)
		for key := range want {
			if len(got[key]) != len(want[key]) {
				t.Fatalf("seed %d: %s has %d pages, want %d", seed, key, len(got[key]), len(want[key]))
			}
			for at, b := range want[key] {
				if got[key][at] != b {
					t.Fatalf("seed %d: %s differs at byte %d", seed, key, at)
				}
			}
		}
		if again := moved.Moved("copy", copies); !again.Equal(moved) {
			t.Fatalf("seed %d: moved twice it is another", seed)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		if again := encoded(t, table); !bytes.Equal(again, b) {
			t.Errorf("what is read is written otherwise:\n%x\n%x", b, again)
		}
		if err := table.Pruned().Check(); err != nil {
			t.Errorf("pruned: %v", err)
		}
	})
}

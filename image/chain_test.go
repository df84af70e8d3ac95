package image

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	cube "cubesandbox"
	"cubesandbox/image/pagetable"
)

const (
	// segment is a part of the memory that one image of a chain has changed, in bytes:
	// its ends are within regions.
	segment = 150 * pagetable.PageSize
	links   = 5
)

// link is an image of a chain.
type link struct {
	im cube.Image
	// memory is what is restored from it.
	memory []byte
	// at says of each segment whose pages it lies in, and where.
	at []lies
}

type lies struct {
	base   cube.BaseID
	offset uint64
}

// table is that of an image whose own pages have the name own.
func (l link) table(own cube.BaseID) pagetable.Table {
	var t pagetable.Table
	f := pagetable.File{Key: "main"}
	for i, p := range l.at {
		e := pagetable.Entry{Start: uint64(i) * segment, End: uint64(i+1) * segment, Offset: p.offset}
		if p.base != own {
			n := slices.Index(t.Names, string(p.base))
			if n < 0 {
				n = len(t.Names)
				t.Names = append(t.Names, string(p.base))
			}
			e.Name = uint32(n + 1)
		}
		f.Entries = append(f.Entries, e)
	}
	t.Files = []pagetable.File{f}
	return t
}

// first begins a chain: all its memory is in its own pages.
func first(s *Store, durable bool) (link, error) {
	return next(s, link{memory: make([]byte, links*segment), at: make([]lies, links)}, durable, 0, 1, 2, 3, 4)
}

// next saves a copy of a link in which some segments have been written to.
func next(s *Store, l link, durable bool, written ...int) (link, error) {
	w, err := s.Begin(cube.NewSnapshotID(), 0)
	if err != nil {
		return link{}, err
	}
	return l.save(w, durable, written...)
}

func (l link) save(w *Writer, durable bool, written ...int) (link, error) {
	l.memory, l.at = bytes.Clone(l.memory), slices.Clone(l.at)
	pages := l.write(w, written)
	if err := errors.Join(write(w, pages, []byte("tar")), pagetable.Write(w.Sources, l.table(w.Base()))); err != nil {
		return link{}, err
	}
	im, err := w.Publish(background, cube.Image{Kind: cube.KindSnapshot, Engine: "e"}, durable)
	l.im = im
	return l, err
}

// write changes segments, and returns what the own pages are then.
func (l link) write(w *Writer, written []int) (pages []byte) {
	for _, i := range written {
		b := content(segment)
		copy(l.memory[i*segment:], b)
		l.at[i] = lies{w.Base(), uint64(len(pages))}
		pages = append(pages, b...)
	}
	return pages
}

// chain is a line of images, of which each has written to another segment than the
// one before.
func chain(t *testing.T, s *Store, durable bool) []link {
	t.Helper()
	l, err := first(s, durable)
	out := []link{l}
	for i := 1; err == nil && i < links; i++ {
		l, err = next(s, l, durable, i)
		out = append(out, l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restored is the memory that a sentry makes of an image.
func restored(s *Store, id cube.ImageID) ([]byte, error) {
	f, err := s.OpenImage(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readTable(f.Sources)
	if err != nil {
		return nil, err
	}
	memory := make([]byte, links*segment)
	for _, e := range t.Files[0].Entries {
		pages := f.Files[pagesIndex]
		if e.Name > 0 {
			if b := f.Bases[e.Name-1]; string(b.ID) == t.Names[e.Name-1] {
				pages = b.Pages
			} else {
				return nil, fmt.Errorf("base %d is %s, the table has %s", e.Name-1, b.ID, t.Names[e.Name-1])
			}
		}
		if _, err := pages.ReadAt(memory[e.Start:e.End], int64(e.Offset)); err != nil {
			return nil, err
		}
	}
	return memory, nil
}

// wantMemory fails if an image is not restored as it was saved.
func wantMemory(t *testing.T, s *Store, l link) {
	t.Helper()
	got, err := restored(s, l.im.ID)
	if err != nil || !bytes.Equal(got, l.memory) {
		t.Errorf("image %s is restored with other memory than it was saved with (%v)", l.im.ID, err)
	}
}

// wantBases fails if the pages of others are left of deleted images than these.
func wantBases(t *testing.T, s *Store, want ...link) {
	t.Helper()
	var ids []cube.BaseID
	for _, l := range want {
		ids = append(ids, l.im.Base)
	}
	slices.Sort(ids)
	got, err := s.bases()
	if err != nil || !slices.Equal(got, ids) {
		t.Errorf("of deleted images the pages of %v are there (%v), want %v", got, err, ids)
	}
	for _, id := range got {
		entries, err := os.ReadDir(s.baseDir(id))
		if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "kernel" || e.Name() == diskName || isSources(e.Name()) }) {
			t.Errorf("base %s has %v (%v), want pages alone", id, entries, err)
		}
	}
}

func TestAChainIsRestoredFromTheMiddle(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	for _, s := range []*Store{s, reopen(t, s.dir), reboot(t, s)} {
		for i, l := range c {
			wantMemory(t, s, l)
			if err := s.Verify(background, l.im.ID); err != nil {
				t.Error(err)
			}
			im, err := s.Image(l.im.ID)
			if err != nil || len(im.Bases) != i || im.SharedBytes != int64(min(i, 1)*(links-1)*segment) {
				t.Errorf("link %d: got %+v, %v", i, im, err)
			}
		}
	}
	m, err := decode(read(t, filepath.Join(s.Dir(c[0].im.ID), manifestName)))
	if err != nil || m.Format != formatBases {
		t.Errorf("with a table: got format %d, %v", m.Format, err)
	}
	plain, _ := publish(t, s)
	m, err = decode(read(t, filepath.Join(s.Dir(plain.ID), manifestName)))
	if err != nil || m.Format != format || exists(filepath.Join(s.Dir(plain.ID), sourcesName)) {
		t.Errorf("without a table: got format %d, %v; earlier versions are to read it", m.Format, err)
	}
}

func TestFilesOfAChainCannotBeWrittenTo(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	f, err := s.OpenImage(c[links-1].im.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	again, err := f.Reopen()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	all := append(slices.Clone(again.Files), again.Sources)
	for i, b := range again.Bases {
		if b.ID != f.Image.Bases[i] {
			t.Errorf("base %d is %s, want %s", i, b.ID, f.Image.Bases[i])
		}
		all = append(all, b.Pages)
	}
	for _, x := range all {
		fi, err := x.Stat()
		if err != nil || fi.Mode().Perm() != 0o400 {
			t.Errorf("%v, %v; want mode 0400", fi.Mode(), err)
		}
		if _, err := x.WriteAt([]byte{1}, 0); err == nil {
			t.Error("what was opened for a restore can be written to")
		}
	}
}

func TestATableThatCannotBeTrueIsNotPublished(t *testing.T) {
	s := open(t)
	l, err := first(s, false)
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(t *pagetable.Table, own cube.BaseID){
		"names a base that is not there": func(t *pagetable.Table, _ cube.BaseID) { t.Names[0] = string(cube.NewBaseID(l.im.ID)) },
		"names what is no base":          func(t *pagetable.Table, _ cube.BaseID) { t.Names[0] = string(l.im.ID) },
		"names itself":                   func(t *pagetable.Table, own cube.BaseID) { t.Names[0] = string(own) },
		"beyond the end of a base":       func(t *pagetable.Table, _ cube.BaseID) { t.Files[0].Entries[1].Offset += links * segment },
		"beyond the end of its own":      func(t *pagetable.Table, _ cube.BaseID) { t.Files[0].Entries[0].Offset += segment },
	} {
		w := begin(t, s, cube.NewSnapshotID())
		child := link{memory: bytes.Clone(l.memory), at: slices.Clone(l.at)}
		pages := child.write(w, []int{0})
		table := child.table(w.Base())
		spoil(&table, w.Base())
		if err := errors.Join(write(w, pages, nil), pagetable.Write(w.Sources, table)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Publish(background, cube.Image{}, false); err == nil {
			t.Errorf("%s: it is published", what)
		}
		if exists(s.Dir(w.id)) {
			t.Errorf("%s: its directory is there", what)
		}
		wantNothingStaged(t, s)
	}
	w := begin(t, s, cube.NewSnapshotID())
	fill(t, w, 4096)
	if _, err := w.Sources.WriteString("no table"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Publish(background, cube.Image{}, false); err == nil {
		t.Error("what is no table is published")
	}
}

func TestAChainHasAnEnd(t *testing.T) {
	s := open(t)
	l, err := first(s, false)
	if err != nil {
		t.Fatal(err)
	}
	save := func(bases int) error {
		w := begin(t, s, cube.NewSnapshotID())
		table := pagetable.Table{Files: []pagetable.File{{Key: "main"}}}
		for i := range bases {
			l, err := next(s, l, false, 0)
			if err != nil {
				return err
			}
			table.Names = append(table.Names, string(l.im.Base))
			table.Files[0].Entries = append(table.Files[0].Entries, pagetable.Entry{Start: uint64(i) * pagetable.PageSize, End: uint64(i+1) * pagetable.PageSize, Name: uint32(i + 1)})
		}
		if err := errors.Join(write(w, content(4096), nil), pagetable.Write(w.Sources, table)); err != nil {
			return err
		}
		_, err := w.Publish(background, cube.Image{}, false)
		return err
	}
	if err := save(MaxBases); err != nil {
		t.Errorf("%d bases: %v", MaxBases, err)
	}
	if err := save(MaxBases + 1); err == nil {
		t.Errorf("%d bases are published", MaxBases+1)
	}
}

func TestNamesThatNothingUsesAreTakenOut(t *testing.T) {
	s := open(t)
	l, err := first(s, false)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := publish(t, s)
	w := begin(t, s, cube.NewSnapshotID())
	child := link{memory: bytes.Clone(l.memory), at: slices.Clone(l.at)}
	pages := child.write(w, []int{2})
	table := child.table(w.Base())
	table.Names = append(table.Names, string(other.Base), string(cube.NewBaseID(other.ID))) // of which one is not even there
	if err := errors.Join(write(w, pages, nil), pagetable.Write(w.Sources, table)); err != nil {
		t.Fatal(err)
	}
	if child.im, err = w.Publish(background, cube.Image{}, false); err != nil || !slices.Equal(child.im.Bases, []cube.BaseID{l.im.Base}) {
		t.Fatalf("got bases %v, %v", child.im.Bases, err)
	}
	wantMemory(t, s, child)
}

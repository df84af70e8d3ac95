package image

import (
	"slices"
	"testing"

	cube "cubesandbox"
)

// wantSpace fails if an image takes other room than that.
func wantSpace(t *testing.T, s *Store, what string, l link, unique, shared int64, users ...link) {
	t.Helper()
	var ids []cube.ImageID
	for _, u := range users {
		ids = append(ids, u.im.ID)
	}
	slices.Sort(ids)
	got, ok := s.Spaces()[l.im.ID]
	slices.Sort(got.Users)
	if !ok || got.Unique != unique || got.Shared != shared || !slices.Equal(got.Users, ids) {
		t.Errorf("%s: got %+v, %v; want unique %d, shared %d, users %v", what, got, ok, unique, shared, ids)
	}
}

func TestWhatAnImageTakesAloneAndWithOthers(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	// What an image has beside its pages: kernel, pages-meta, the table and a tar.
	rest := func(l link) int64 { return l.im.Bytes - l.im.PagesBytes }
	wantSpace(t, s, "the first", c[0], rest(c[0]), links*segment, c[1:]...)
	wantSpace(t, s, "one in the middle", c[2], rest(c[2]), links*segment, c[3:]...)
	wantSpace(t, s, "the last", c[4], c[4].im.Bytes, (links-1)*segment)
	deleteLinks(t, s, c[:4]...)
	// Of the first there are all five segments, though one is needed.
	wantSpace(t, s, "alone", c[4], c[4].im.Bytes+links*segment+3*segment, 0)
	if err := s.Hide(c[4].im.ID); err != nil {
		t.Fatal(err)
	}
	wantSpace(t, s, "hidden", c[4], c[4].im.Bytes+links*segment+3*segment, 0)
	before := allocated(s.dir)
	want := s.Spaces()[c[4].im.ID].Unique
	deleteLinks(t, s, c[4])
	if freed := before - allocated(s.dir); freed < want || freed > want+1<<20 {
		t.Errorf("%d bytes came back, %d were promised", freed, want)
	}
}

func TestPagesAreFreedWhenTheLastSandboxHasEnded(t *testing.T) {
	s := open(t)
	c := chain(t, s, false)
	release := holding(t, "open", s.dir, string(c[1].im.ID))
	deleteLinks(t, s, c...)
	if err := s.FreePages(); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s, c[:2]...)
	release()
	if err := s.FreePages(); err != nil {
		t.Fatal(err)
	}
	wantBases(t, s)
}

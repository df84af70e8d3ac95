package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	cube "cubesandbox"
)

func TestNoByteOfTheManifestCanChange(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	path := filepath.Join(s.Dir(im.ID), manifestName)
	was := read(t, path)
	if m, err := decode(was); err != nil || m.Image.ID != im.ID {
		t.Fatalf("the manifest as it was written: %v", err)
	}
	for i := range was {
		for bit := range 8 {
			b := bytes.Clone(was)
			b[i] ^= 1 << bit
			if _, err := decode(b); err == nil {
				t.Errorf("byte %d, bit %d: accepted", i, bit)
			}
		}
		if _, err := decode(was[:i]); err == nil {
			t.Errorf("cut at byte %d: accepted", i)
		}
	}
	if err := os.Rename(s.Dir(im.ID), s.Dir(cube.NewSnapshotID())); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Images(); len(all) != 0 || !names(err, manifestName) {
		t.Errorf("an image under another's name: got %v, %v", all, err)
	}
}

func TestOneBadManifestHidesNoOtherImage(t *testing.T) {
	s := open(t)
	bad, _ := publish(t, s)
	good, _ := publish(t, s)
	flip(t, filepath.Join(s.Dir(bad.ID), manifestName), 7)
	all, err := s.Images()
	if len(all) != 1 || all[0].ID != good.ID || !names(err, manifestName) {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestAnImageOfFormat1IsReadAndVerifiedFirst(t *testing.T) {
	for _, whole := range []bool{true, false} {
		s := open(t)
		im, _ := publish(t, s)
		// As the version before wrote it.
		path := filepath.Join(s.Dir(im.ID), manifestName)
		m, err := decode(read(t, path))
		if err != nil {
			t.Fatal(err)
		}
		if !whole {
			rot(t, s, im.ID, "pages")
			m, _ = decode(read(t, path))
		}
		m.Format, m.Boot = 1, ""
		b, err := json.MarshalIndent(m, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		putBack(t, path, b)
		got, err := s.Image(im.ID)
		if err != nil || got.Durable || got.PagesBytes != im.PagesBytes {
			t.Errorf("got %+v, %v; want %+v", got, err, im)
		}
		f, err := s.OpenImage(im.ID)
		if whole && err != nil || !whole && !names(err, "pages") {
			t.Errorf("whole %v: got %v", whole, err)
		}
		if err == nil {
			f.Close()
		}
	}
}

func TestAnImageOfALaterFormatIsRefusedAsSuch(t *testing.T) {
	s := open(t)
	im, _ := publish(t, s)
	path := filepath.Join(s.Dir(im.ID), manifestName)
	m, err := decode(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	m.Format = formatBases + 1
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	putBack(t, path, b)
	if _, err := s.Image(im.ID); !errors.Is(err, cube.ErrIncompatible) {
		t.Errorf("got %v, want ErrIncompatible", err)
	}
}

func FuzzManifest(f *testing.F) {
	m := manifest{Format: format, Image: cube.Image{ID: "snap-000000000000000000000000"}}
	for _, name := range memoryNames {
		m.Files = append(m.Files, fileSum{Name: name, Size: 1, CRC: []uint32{1}})
	}
	b, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	m.Format, m.Files = formatBases, append(m.Files, fileSum{Name: sourcesName, Size: 1, CRC: []uint32{1}})
	m.Image.Bases, m.BaseBytes = []cube.BaseID{"tpl-000000000000000000000000.00000000"}, []int64{4096}
	if b, err = m.encode(); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(seal(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(again); m.Format >= format && err != nil {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}

package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhatCannotBePutBackIsRefusedBeforehand(t *testing.T) {
	link := func(name, target string) entry {
		return entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}}
	}
	root := dir("./", 0o755)
	for name, entries := range map[string][]entry{
		"a path that goes up":              {root, file("./../x", "x")},
		"a bare path":                      {file("x", "x")},
		"a name that is too long":          {root, file("./"+strings.Repeat("n", 256), "x")},
		"a file in no directory":           {root, file("./d/x", "x")},
		"a file in a file":                 {root, file("./d", "x"), file("./d/x", "x")},
		"a link to nothing":                {root, link("./a", "./b")},
		"a link to what comes later":       {root, link("./a", "./b"), file("./b", "x")},
		"a link to a directory":            {root, dir("./d/", 0o755), link("./a", "./d")},
		"a link that goes up":              {root, link("./a", "./../b")},
		"a symbolic link to nothing":       {root, {Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./a"}}},
		"an unknown kind":                  {root, {Header: tar.Header{Typeflag: tar.TypeCont, Name: "./a"}}},
		"an access control list":           {root, with(file("./a", "x"), aclPrefix+"access", "!")},
		"a root that is none":              {file("./.", "x")},
		"a directory that is in no parent": {root, dir("./a/b/", 0o755)},
	} {
		b := pack(t, entries...)
		refused := Check(bytes.NewReader(b))
		if refused == nil {
			t.Errorf("%s is not refused", name)
		}
		if _, err := Unpack(t.TempDir(), bytes.NewReader(b)); err == nil {
			t.Errorf("%s can be unpacked, and is refused beforehand: %v", name, refused)
		}
	}
}

func TestOfAFileHeadersAloneAreReadBeforehand(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "tar")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	const size = 8 << 30 // a hole: to read it would take seconds
	h := tar.Header{Typeflag: tar.TypeReg, Name: "./huge", Size: size, Mode: 0o600}
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(at + size + 1024); err != nil {
		t.Fatal(err)
	}
	read := &counted{File: f}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := Check(read); err != nil || read.bytes > 1<<20 {
		t.Errorf("got %v, after reading %d bytes", err, read.bytes)
	}
	if err := f.Truncate(at + size - 1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := Check(f); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: got %v", err)
	}
}

// counted counts what is read of a file.
type counted struct {
	*os.File
	bytes int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	c.bytes += n
	return n, err
}

func TestAnErrorBeforehandNamesThePath(t *testing.T) {
	err := Check(bytes.NewReader(pack(t, file("./"+strings.Repeat("n", 300), "x"))))
	if !errors.Is(err, unix.ENAMETOOLONG) || !strings.Contains(err.Error(), "./nnn") || len(err.Error()) > 2*maxShown {
		t.Errorf("got %v", err)
	}
	var many []entry
	for i := range 2000 {
		many = append(many, file(fmt.Sprintf("./%d", i), "x"))
	}
	if err := Check(bytes.NewReader(pack(t, many...))); err != nil {
		t.Errorf("many files: %v", err)
	}
}

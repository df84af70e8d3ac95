package main

import (
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// held is a part of some bytes.
func held(content []byte, ways ...way) part {
	p := textOf("held", content, nil)
	p.ways = ways
	return p
}

func TestAWayThatReadsOtherBytesIsNamedWithTheirPlace(t *testing.T) {
	content := make([]byte, 200_000)
	fillBytes(content, 7)
	stale := func(off int64, b []byte) error {
		copy(b, content[off:])
		if off == 2<<16 {
			b[33]++
		}
		return nil
	}
	good := func(off int64, b []byte) error { copy(b, content[off:]); return nil }
	fails := func(int64, []byte) error { return errors.New("cannot be read") }
	p := held(content, always("a good one", false, good), always("a stale one", false, stale), always("one that fails", false, fails))
	got, err := p.compare(sha256.New(), p.ways)
	if err != nil || len(got) != 2 {
		t.Fatalf("got %q (%v), want one line for each of two ways", got, err)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"a stale one at 131105: it gives", "one that fails at 0: cannot be read"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q does not say %q", all, want)
		}
	}
}

func TestAPageThatCannotBeLoadedIsNotAPageOfZeroes(t *testing.T) {
	addr, err := mmap(0, 4*page, readWrite, anonymous, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer munmap(addr, 4*page)
	p := newGuest().regionPart(&region{name: "memory", addr: addr, size: 4 * page})
	digest := func() string {
		h := sha256.New()
		if disagree, err := p.compare(h, p.ways); err != nil || disagree != nil {
			t.Errorf("its ways do not agree: %q (%v)", disagree, err)
		}
		return string(h.Sum(nil))
	}
	zero := digest()
	if err := unix.Mprotect(at(addr+page, page), unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4*page)
	if bad := loads(addr, b); !slices.Equal(bad, []bool{false, true, false, false}) {
		t.Errorf("pages that cannot be loaded: %v, want the second", bad)
	}
	if digest() == zero {
		t.Error("with a page that cannot be loaded the digest is as before")
	}
	if err := unix.Mprotect(at(addr+page, page), readWrite); err != nil {
		t.Fatal(err)
	}
	if digest() != zero {
		t.Error("opened again it is another")
	}
}

func TestAWorkerHasItsParentsMemoryAndDoesWhatItIsTold(t *testing.T) {
	g := newGuest()
	addr, err := mmap(0, 8*page, readWrite, anonymous, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer munmap(addr, 8*page)
	rg := &region{name: "memory", addr: addr, size: 8 * page}
	fill(addr, rg.size, 3)
	g.regions = regions{rg}
	w, err := g.newWorker()
	if err != nil {
		t.Fatal(err)
	}
	p := w.part(w.regions[0], false)
	if disagree, err := p.compare(sha256.New(), p.ways); err != nil || disagree != nil {
		t.Errorf("its ways do not agree: %q (%v)", disagree, err)
	}
	before := sum(addr, rg.size)
	if got, err := w.seen(0, rg.size, rg); err != nil || got != before {
		t.Errorf("it sees %#x (%v), want %#x", got, err, before)
	}
	if _, _, err := w.do(doFill, addr+5, 100, 9); err != nil {
		t.Fatal(err)
	}
	if sum(addr, rg.size) != before {
		t.Error("its parent sees what it has written")
	}
	if err := w.begin(doFill, 1, 1, 1); err != nil { // nothing is mapped there
		t.Fatal(err)
	}
	if _, _, err := w.finish(); !errors.Is(err, io.EOF) {
		t.Errorf("after a fault it answers (%v)", err)
	}
	if status, err := w.end(false); err != nil || status.Signal() != unix.SIGSEGV {
		t.Errorf("it ended by status %#x (%v), want SIGSEGV", int(status), err)
	}
}

func TestTheLoadSeesATornBlock(t *testing.T) {
	addr, err := mmap(0, loadBlocks*blockSize, readWrite, anonymous, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer munmap(addr, loadBlocks*blockSize)
	l := &load{}
	l.add("memory", addr, -1)
	b := make([]byte, blockSize)
	for range loadBlocks + 3 {
		if err := l.writers[0].one(b); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.check(); err != nil || n != loadBlocks+3 {
		t.Errorf("got %d blocks (%v), want %d whole ones", n, err, loadBlocks+3)
	}
	at(addr+blockSize+777, 1)[0] ^= 1
	if _, err := l.check(); err == nil || !strings.Contains(err.Error(), "block 1, written 2 times, is torn at byte 777") {
		t.Errorf("block 1 is torn at byte 777; it says: %v", err)
	}
}

func TestNoTwoOperationsHaveOneName(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range operations() {
		if seen[o.name] || !o.memory && !o.files {
			t.Errorf("%q is there twice, or needs nothing", o.name)
		}
		seen[o.name] = true
	}
}

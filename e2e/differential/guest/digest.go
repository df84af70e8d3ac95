package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"cubesandbox/e2e/differential/guestapi"
)

// part is a piece of state, and how it is read.
type part struct {
	name string
	size int64
	// large ones are read by slow ways in places only; they, and those that are aside,
	// are read only when all is.
	large, aside bool
	// read gives bytes at an offset. bad are the pages of them that nobody may load.
	read func(off int64, b []byte) (bad []bool, err error)
	ways []way
	flip func(off int64) error
}

// way is another way to read a part than its first.
type way struct {
	name string
	slow bool
	open func() (read func(off int64, b []byte) error, close func(), err error)
}

// always is a way that needs no opening.
func always(name string, slow bool, read func(off int64, b []byte) error) way {
	return way{name, slow, func() (func(int64, []byte) error, func(), error) { return read, func() {}, nil }}
}

// slowEvery is which chunks of a large part are read by a slow way.
const slowEvery = 16

// parts are all that there are but texts.
func (g *guest) parts() (all []part, err error) {
	for _, rg := range g.regions {
		all = append(all, g.regionPart(rg))
	}
	for i, w := range g.workers {
		for _, rg := range w.regions {
			if !rg.shared || rg.name == "shared anonymous" {
				all = append(all, w.part(rg, i > 0))
			}
		}
	}
	for _, f := range g.files {
		p, err := f.part()
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// texts are parts that must be made first, which takes its time.
func (g *guest) texts() map[string]func() (part, error) {
	if g.mode == guestapi.MemoryOnly {
		return nil
	}
	return map[string]func() (part, error){namesPart: names, lowerPart: lowerLayer}
}

// digest reads parts, by one way or by all.
func (g *guest) digest(deep, ways bool) (out []guestapi.Part, disagree []string, err error) {
	all, err := g.parts()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{namesPart, lowerPart} {
		text, ok := g.texts()[name]
		if !ok || name == lowerPart && !deep {
			continue
		}
		p, err := text()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if (p.large || p.aside) && !deep {
			continue
		}
		h := sha256.New()
		others := p.ways
		if !ways {
			others = nil
		}
		bad, err := p.compare(h, others)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.name, err)
		}
		disagree = append(disagree, bad...)
		out = append(out, guestapi.Part{Name: p.name, Size: p.size, Sum: hex.EncodeToString(h.Sum(nil))})
	}
	return out, disagree, nil
}

// compare hashes a part, and reads it by other ways, too.
func (p part) compare(h hash.Hash, ways []way) (disagree []string, err error) {
	reads := make([]func(int64, []byte) error, len(ways))
	for i, w := range ways {
		read, done, err := w.open()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		defer done()
		reads[i] = read
	}
	first, other := alignedBuffer(), alignedBuffer()
	for n, off := 0, int64(0); off < p.size; n, off = n+1, off+guestapi.ChunkSize {
		b := first[:min(guestapi.ChunkSize, p.size-off)]
		bad, err := p.read(off, b)
		if err != nil {
			return nil, fmt.Errorf("at %d: %w", off, err)
		}
		hashPages(h, b, bad)
		for i, w := range ways {
			if reads[i] == nil || w.slow && p.large && n%slowEvery != 0 {
				continue
			}
			at, err := differs(b, other[:len(b)], bad, func(from int, b []byte) error { return reads[i](off+int64(from), b) })
			if err != nil {
				disagree = append(disagree, fmt.Sprintf("%s by %s at %d: %v", p.name, w.name, off, err))
			} else if at >= 0 {
				disagree = append(disagree, fmt.Sprintf("%s by %s at %d: it gives %#x, the first way %#x", p.name, w.name, off+int64(at), other[at], b[at]))
			} else {
				continue
			}
			reads[i] = nil // that is enough of it
		}
	}
	return disagree, nil
}

// differs reads what has been read again, and returns where it differs, or -1.
func differs(want, got []byte, bad []bool, read func(from int, b []byte) error) (int, error) {
	pieces := [][2]int{{0, len(want)}}
	if bad != nil {
		pieces = nil
		for i := range bad {
			if !bad[i] {
				pieces = append(pieces, [2]int{i * page, min((i+1)*page, len(want))})
			}
		}
	}
	for _, piece := range pieces {
		w, b := want[piece[0]:piece[1]], got[piece[0]:piece[1]]
		if err := read(piece[0], b); err != nil {
			return 0, err
		}
		if bytes.Equal(w, b) {
			continue
		}
		for i := range w {
			if w[i] != b[i] {
				return piece[0] + i, nil
			}
		}
	}
	return -1, nil
}

// hashPages hashes what was read, and where nothing could be.
func hashPages(h hash.Hash, b []byte, bad []bool) {
	if bad == nil {
		h.Write(b)
		return
	}
	for i := range bad {
		if bad[i] {
			io.WriteString(h, "nobody may load this page")
		} else {
			h.Write(b[i*page : min((i+1)*page, len(b))])
		}
	}
}

// alignedBuffer is a chunk that begins at a page, as O_DIRECT needs it.
func alignedBuffer() []byte {
	b := make([]byte, guestapi.ChunkSize+page)
	skip := (page - addrOf(b)%page) % page
	return b[skip:][:guestapi.ChunkSize]
}

func (g *guest) part(name string) (part, error) {
	if text, ok := g.texts()[name]; ok {
		return text()
	}
	all, err := g.parts()
	if err != nil {
		return part{}, err
	}
	for _, p := range all {
		if p.name == name {
			return p, nil
		}
	}
	return part{}, fmt.Errorf("no part %q", name)
}

// chunks are the digests of a part's chunks.
func (g *guest) chunks(name string) (sums []string, err error) {
	p, err := g.part(name)
	if err != nil {
		return nil, err
	}
	b := alignedBuffer()
	for off := int64(0); off < p.size; off += guestapi.ChunkSize {
		h, piece := sha256.New(), b[:min(guestapi.ChunkSize, p.size-off)]
		bad, err := p.read(off, piece)
		if err != nil {
			return nil, err
		}
		hashPages(h, piece, bad)
		sums = append(sums, hex.EncodeToString(h.Sum(nil)))
	}
	return sums, nil
}

// bytes are those of one chunk; pages that nobody may load are left out of it as zeroes.
func (g *guest) bytes(name string, off int64) ([]byte, error) {
	p, err := g.part(name)
	if err != nil || off >= p.size {
		return nil, err
	}
	b := make([]byte, min(guestapi.ChunkSize, p.size-off))
	bad, err := p.read(off, b)
	for i := range bad {
		if bad[i] {
			clear(b[i*page : min((i+1)*page, len(b))])
		}
	}
	return b, err
}

func (g *guest) flip(name string, off int64) error {
	p, err := g.part(name)
	if err != nil {
		return err
	}
	if off >= p.size || p.flip == nil {
		return fmt.Errorf("%s has %d bytes, and byte %d cannot be flipped", name, p.size, off)
	}
	return p.flip(off)
}

// textOf is a part that is there in memory.
func textOf(name string, content []byte, flip func(int64) error) part {
	return part{name: name, size: int64(len(content)), flip: flip, read: func(off int64, b []byte) ([]bool, error) {
		copy(b, content[off:])
		return nil, nil
	}}
}

// hashFile is what the program does when it is executed by itself.
func hashFile(path string) int {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		h := sha256.New()
		if _, err = io.Copy(h, f); err == nil {
			fmt.Printf("%x", h.Sum(nil))
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

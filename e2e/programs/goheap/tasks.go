package main

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
)

const (
	pieces  = 500    // of each heap
	largest = 60_000 // bytes, of a piece
)

// written is what the content of a piece follows from.
type written struct {
	mark  string
	piece int
	round uint64
	size  int
}

// fill makes the content: splitmix64 from a seed.
func (w written) fill(b []byte) {
	h := fnv.New64a()
	h.Write([]byte(w.mark)) // never fails
	x := h.Sum64() ^ uint64(w.piece)*0x9e3779b97f4a7c15 ^ w.round*0xc2b2ae3d27d4eb4f
	var word [8]byte
	for i := 0; i < len(b); i += 8 {
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		copy(b[i:], word[:])
	}
}

// heap has pieces, which are written in place or replaced by others of another size.
type heap struct {
	p       *program
	name    string
	random  *rand.Rand
	pieces  map[int][]byte
	written [pieces]written
	want    []byte
}

func newHeap(p *program, name string) *heap {
	h := &heap{p: p, name: name, random: rand.New(rand.NewPCG(1, uint64(len(name)))), pieces: map[int][]byte{}, want: make([]byte, largest)}
	for i := range pieces {
		h.replace(i, 0)
	}
	return h
}

func (h *heap) once(n uint64) {
	i := h.random.IntN(pieces)
	h.compare(i)
	if n%2 == 0 {
		h.replace(i, n)
		return
	}
	b := h.pieces[i]
	h.written[i] = written{h.p.now(), i, n, len(b)}
	h.written[i].fill(b)
}

func (h *heap) replace(i int, n uint64) {
	h.written[i] = written{h.p.now(), i, n, 1 + h.random.IntN(largest)}
	h.pieces[i] = make([]byte, h.written[i].size)
	h.written[i].fill(h.pieces[i])
}

func (h *heap) compare(i int) {
	w := h.written[i]
	want := h.want[:w.size]
	w.fill(want)
	got := h.pieces[i]
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	h.p.wrong("heap %s, piece %+v: %d bytes, which differ from byte %d", h.name, w, len(got), at)
}

func (h *heap) check() {
	for i := range pieces {
		h.compare(i)
	}
}

// trees keeps some trees, whose sums are known, and replaces one in each round.
type trees struct {
	p    *program
	kept [8]*node
	sums [8]uint64
}

type node struct {
	left, right *node
	value       uint64
}

// grow makes a tree of so many levels and returns its sum.
func grow(levels int, value uint64) (*node, uint64) {
	if levels == 0 {
		return nil, 0
	}
	l, a := grow(levels-1, value*3+1)
	r, b := grow(levels-1, value*5+2)
	return &node{l, r, value}, a + b + value
}

func (n *node) sum() uint64 {
	if n == nil {
		return 0
	}
	return n.left.sum() + n.right.sum() + n.value
}

func (t *trees) once(n uint64) {
	i := int(n % uint64(len(t.kept)))
	t.compare(i)
	t.kept[i], t.sums[i] = grow(11, n)
}

func (t *trees) compare(i int) {
	if got := t.kept[i].sum(); got != t.sums[i] {
		t.p.wrong("trees, number %d: the sum is %d, want %d", i, got, t.sums[i])
	}
}

func (t *trees) check() {
	for i := range t.kept {
		t.compare(i)
	}
}

// stacks has goroutines go deep, so that their stacks are copied to larger ones, which
// go when they end.
type stacks struct{ p *program }

func (s *stacks) once(n uint64) {
	const depth = 600
	out := make(chan uint64)
	for i := range uint64(2) {
		go func() { out <- deep(depth, n+i) }()
	}
	got := <-out + <-out
	want := uint64(0)
	for i := range uint64(2) {
		for d := range uint64(depth) {
			want += 32 * (n + i + d + 1)
		}
	}
	if got != want {
		s.p.wrong("stacks, round %d: the sum is %d, want %d", n, got, want)
	}
}

func (s *stacks) check() {}

// deep holds words in each of its frames while those below are there.
func deep(depth int, salt uint64) uint64 {
	if depth == 0 {
		return 0
	}
	var words [32]uint64
	for i := range words {
		words[i] = salt + uint64(depth)
	}
	below := deep(depth-1, salt)
	for _, w := range words {
		below += w
	}
	return below
}

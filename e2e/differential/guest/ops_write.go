package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// writes are stores into memory.
func writes() []operation {
	return []operation{
		{"write at random places", true, false, writeRandom},
		{"write a byte in each page", true, false, strider(page)},
		{"write a byte in each mebibyte", true, false, strider(1<<20 + 1)},
		{"write zeroes over pages", true, false, writeZeroes},
		{"write everywhere from eight threads", true, false, writeThreads},
		{"rewrite code and run it", true, false, rewriteCode},
		{"madvise DONTNEED, aligned", true, false, dontNeed(16)},
		{"madvise DONTNEED, odd", true, false, dontNeed(1)},
		{"madvise REMOVE", true, false, remove},
		{"mprotect NONE or READ, and back", true, false, protect},
		{"mlock and munlock", true, false, lock},
		{"advice without effect", true, false, advise},
	}
}

func writeRandom(g *guest, r *rand.Rand) (string, error) {
	for range 40 {
		rg := g.regions.pick(r)
		off, n := rg.place(r, 70_000)
		if r.IntN(3) == 0 {
			n = 1
		}
		g.fill(rg.addr+off, n, r.Uint64())
	}
	return "", nil
}

func strider(step uintptr) func(*guest, *rand.Rand) (string, error) {
	return func(g *guest, r *rand.Rand) (string, error) {
		for _, rg := range g.regions {
			if rg.fixed || r.IntN(2) == 0 && rg.name != "anonymous" {
				continue
			}
			first := uintptr(r.IntN(page))
			for _, s := range rg.free() {
				if from := s.from + first; from < s.to {
					g.stride(rg.addr+from, s.to-from, step, r.Uint64())
				}
			}
		}
		return "", nil
	}
}

// free is a region without what is guarded.
func (rg *region) free() []span {
	if rg.guarded.to == 0 {
		return []span{{0, rg.size}}
	}
	return []span{{0, rg.guarded.from}, {rg.guarded.to, rg.size}}
}

func writeZeroes(g *guest, r *rand.Rand) (string, error) {
	for range 4 {
		rg := g.regions.pick(r)
		off, n := rg.pages(r, 40)
		if !g.left() {
			clear(at(rg.addr+off, n))
		}
		g.fill(rg.addr+off, min(n, 100), r.Uint64())
		if !g.left() {
			clear(at(rg.addr+off, min(n, 100)))
		}
	}
	return "", nil
}

// writeThreads has eight threads of the host's kind write in turns of 4099 bytes, so
// that each page is written by some of them.
func writeThreads(g *guest, r *rand.Rand) (string, error) {
	const threads, turn = 8, uintptr(4099)
	seed, all := r.Uint64(), g.regions.get("anonymous").free()
	base := g.regions.get("anonymous").addr
	if g.left() {
		return "", nil
	}
	var wg sync.WaitGroup
	for t := range uintptr(threads) {
		wg.Go(func() {
			runtime.LockOSThread() // it ends with its thread
			for _, s := range all {
				for off := s.from + t*turn; off < s.to; off += threads * turn {
					fill(base+off, min(turn, s.to-off)/2, seed^uint64(off))
				}
			}
		})
	}
	wg.Wait()
	return "", nil
}

func rewriteCode(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("code")
	slots := int(rg.size / slotSize)
	before := uint64(0)
	for i := range slots {
		before = before*31 + uint64(runSlot(rg, uintptr(i)*slotSize))
	}
	for range 20 {
		off, number := uintptr(r.IntN(slots))*slotSize, r.Uint32()
		if g.left() {
			continue
		}
		writeSlot(rg, off, number)
		if got := runSlot(rg, off); codeRuns && got != number {
			return "", fmt.Errorf("code at %d that returns %#x was written, and it returns %#x", off, number, got)
		}
	}
	after := uint64(0)
	for i := range slots {
		after = after*31 + uint64(runSlot(rg, uintptr(i)*slotSize))
	}
	return fmt.Sprintf("%#x, %#x", before, after), nil
}

// dontNeed gives back memory: what is private reads as it was mapped, what is shared
// stays. Its places begin at multiples of so many pages.
func dontNeed(align uintptr) func(*guest, *rand.Rand) (string, error) {
	return func(g *guest, r *rand.Rand) (string, error) {
		for range 3 {
			rg := g.regions.pick(r)
			off, n := rg.pages(r, 30)
			off = off / page / align * align * page
			if rg.guarded.meets(off, n) {
				continue
			}
			before := sum(rg.addr+off, n)
			if g.left() {
				continue
			}
			if align == 1 {
				n -= uintptr(r.IntN(page)) // is rounded up
			}
			if err := unix.Madvise(at(rg.addr+off, n), unix.MADV_DONTNEED); err != nil {
				return "", fmt.Errorf("%s: %w", rg.name, err)
			}
			n = (n + page - 1) &^ (page - 1)
			switch after := at(rg.addr+off, n); {
			case rg.shared && sum(rg.addr+off, n) != before:
				return "", fmt.Errorf("%s at %d: shared memory has changed", rg.name, off)
			case rg.name == "break" && slices.ContainsFunc(after, func(b byte) bool { return b != 0 }):
				return "", fmt.Errorf("%s at %d: private memory is not zero", rg.name, off)
			}
			if r.IntN(2) == 0 {
				g.fill(rg.addr+off, min(n, 5000), r.Uint64())
			}
		}
		return "", nil
	}
}

func remove(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("shared anonymous")
	off, n := rg.pages(r, 20)
	return wordOf(unix.Madvise(at(rg.addr+off, n), unix.MADV_REMOVE)), nil
}

// protect guards a place of the anonymous region, or, where one is guarded, opens it
// again: what was there must still be there.
func protect(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("anonymous")
	if s := rg.guarded; s.to != 0 {
		if err := unix.Mprotect(at(rg.addr+s.from, s.to-s.from), readWrite); err != nil {
			return "", err
		}
		rg.guarded = span{}
		g.fill(rg.addr+s.from, 10, r.Uint64())
		return "opened", nil
	}
	off, n := rg.pages(r, 60)
	prot := []int{unix.PROT_NONE, unix.PROT_READ}[r.IntN(2)]
	if err := unix.Mprotect(at(rg.addr+off, n), prot); err != nil {
		return "", err
	}
	rg.guarded = span{off, off + n}
	last := rg.addr + off + n - 1
	load := faults(func() { sum(last, 1) })
	store := faults(func() { fill(last, 1, 1) })
	if load != (prot == unix.PROT_NONE) || !store {
		return "", fmt.Errorf("protection %d: a load faults: %v, a store: %v", prot, load, store)
	}
	return fmt.Sprintf("protection %d", prot), nil
}

func lock(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.pick(r)
	off, n := rg.pages(r, 50)
	b := at(rg.addr+off, n)
	got := wordOf(unix.Mlock(b))
	g.fill(rg.addr+off, n, r.Uint64())
	return got + " " + wordOf(unix.Munlock(b)), nil
}

func advise(g *guest, r *rand.Rand) (string, error) {
	var errs []error
	rg := g.regions.pick(r)
	for _, advice := range []int{unix.MADV_WILLNEED, unix.MADV_HUGEPAGE, unix.MADV_SEQUENTIAL, unix.MADV_NOHUGEPAGE, unix.MADV_NORMAL} {
		errs = append(errs, unix.Madvise(at(rg.addr, rg.size), advice))
	}
	off, n := rg.place(r, 9000)
	g.fill(rg.addr+off, n, r.Uint64())
	if !rg.shared {
		return "", errors.Join(errs...)
	}
	return "", errors.Join(append(errs, unix.Msync(at(rg.addr, rg.size), unix.MS_SYNC))...)
}

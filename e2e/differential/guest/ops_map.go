package main

import (
	"fmt"
	"math/rand/v2"
	"syscall"

	"golang.org/x/sys/unix"
)

// mappings change what is mapped where.
func mappings() []operation {
	return []operation{
		{"munmap the middle, then MAP_FIXED over it", true, false, unmapMiddle},
		{"mremap a piece onto another", true, false, remapMove},
		{"mremap to grow, and move", true, false, remapGrow},
		{"mremap to shrink", true, false, remapShrink},
		{"brk down and up", true, false, moveBreak},
		{"attach System V memory once more", true, false, attachAgain},
		{"map a memfd once more", true, false, mapAgain},
	}
}

// unmapMiddle leaves a hole, which faults, and maps fresh memory over it.
func unmapMiddle(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("anonymous")
	off, n := rg.pages(r, 50)
	addr := rg.addr + off
	munmap(addr, n)
	hole := faults(func() { sum(addr, n) })
	if _, err := mmap(addr, n, readWrite, anonymous|unix.MAP_FIXED, -1); err != nil {
		return "", err
	}
	if !hole {
		return "", fmt.Errorf("%d bytes at %d were unmapped, and can be loaded", n, off)
	}
	if i := notZero(at(addr, n)); i >= 0 {
		return "", fmt.Errorf("new memory at %d is not zero at byte %d", off, i)
	}
	g.fill(addr, n/2, r.Uint64())
	return "", nil
}

func notZero(b []byte) int {
	for i := range b {
		if b[i] != 0 {
			return i
		}
	}
	return -1
}

// mremap is the system call.
func mremap(addr, from, to uintptr, flags int, target uintptr) (uintptr, error) {
	got, _, errno := syscall.Syscall6(unix.SYS_MREMAP, addr, from, to, uintptr(flags), target, 0)
	if errno != 0 {
		return 0, fmt.Errorf("mremap of %d bytes to %d: %w", from, to, errno)
	}
	return got, nil
}

// remapMove moves a piece to a place of its own, maps fresh memory where it was, and
// moves it onto another piece.
func remapMove(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("movable")
	off, n := rg.pages(r, 80)
	to := uintptr(r.Uint64N(uint64((rg.size-n)/page+1))) * page
	aside, err := mmap(0, n, unix.PROT_NONE, anonymous, -1)
	if err != nil {
		return "", err
	}
	if _, err := mremap(rg.addr+off, n, n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, aside); err != nil {
		return "", err
	}
	if _, err := mmap(rg.addr+off, n, readWrite, anonymous|unix.MAP_FIXED, -1); err != nil {
		return "", err
	}
	g.fill(aside, n/3, r.Uint64())
	if _, err := mremap(aside, n, n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, rg.addr+to); err != nil {
		return "", err
	}
	g.fill(rg.addr+to+n-1, 1, r.Uint64())
	return "", nil
}

// growLimit bounds the region that grows, in bytes.
const growLimit = 4 << 20

// remapGrow has a page mapped behind it where one can be, so that it must move.
func remapGrow(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("growing")
	size := min(growLimit, rg.size+(1+uintptr(r.IntN(300)))*page)
	block, err := mmap(rg.addr+rg.size, page, readWrite, anonymous|unix.MAP_FIXED_NOREPLACE, -1)
	if err == nil {
		defer munmap(block, page)
	}
	addr, err := mremap(rg.addr, rg.size, size, unix.MREMAP_MAYMOVE, 0)
	if err != nil {
		return "", err
	}
	if i := notZero(at(addr+rg.size, size-rg.size)); i >= 0 {
		return "", fmt.Errorf("what is new is not zero at byte %d", i)
	}
	old := rg.size
	rg.addr, rg.size = addr, size
	g.fill(rg.addr+old-min(old, 5000), min(old, 5000)+(size-old)/2, r.Uint64())
	return fmt.Sprint(size), nil
}

func remapShrink(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("growing")
	size := max(10*page, rg.size-(1+uintptr(r.IntN(200)))*page)
	size = min(size, rg.size)
	addr, err := mremap(rg.addr, rg.size, size, 0, 0)
	if err != nil {
		return "", err
	}
	if addr != rg.addr {
		return "", fmt.Errorf("it moved")
	}
	rg.size = size
	off, n := rg.place(r, 30_000)
	g.fill(rg.addr+off, n, r.Uint64())
	return fmt.Sprint(size), nil
}

// moveBreak gives the end of the heap back and takes it again: it is zero then.
func moveBreak(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("break")
	n := (1 + uintptr(r.IntN(200))) * page
	end := rg.addr + rg.size
	for _, to := range []uintptr{end - n, end} {
		if got, _, _ := syscall.RawSyscall(unix.SYS_BRK, to, 0, 0); got != to {
			return "", fmt.Errorf("brk: it is %d bytes from where it was put", int64(got)-int64(to))
		}
	}
	if i := notZero(at(end-n, n)); i >= 0 {
		return "", fmt.Errorf("new heap is not zero at byte %d of %d", i, n)
	}
	g.fill(end-n, n/2, r.Uint64())
	return "", nil
}

// attachAgain writes by one address and reads by another.
func attachAgain(g *guest, r *rand.Rand) (string, error) {
	b, err := unix.SysvShmAttach(g.sysv, 0, 0)
	if err != nil {
		return "", err
	}
	err = g.twice("System V", addrOf(b), r)
	if derr := unix.SysvShmDetach(b); err == nil {
		err = derr
	}
	return "", err
}

func mapAgain(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("memfd")
	addr, err := mmap(0, rg.size, readWrite, unix.MAP_SHARED, g.behind["memfd"])
	if err != nil {
		return "", err
	}
	defer munmap(addr, rg.size)
	return "", g.twice("memfd", addr, r)
}

// twice is for a region that is mapped at another address, too.
func (g *guest) twice(name string, other uintptr, r *rand.Rand) error {
	rg := g.regions.get(name)
	if sum(rg.addr, rg.size) != sum(other, rg.size) {
		return fmt.Errorf("%s: its two addresses do not show the same", name)
	}
	for _, by := range []uintptr{rg.addr, other} {
		off, n := rg.place(r, 70_000)
		g.fill(by+off, n, r.Uint64())
		if sum(rg.addr+off, n) != sum(other+off, n) {
			return fmt.Errorf("%s: what is stored by one address at %d is not seen by the other", name, off)
		}
	}
	return nil
}

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// region is a piece of memory.
type region struct {
	name       string
	addr, size uintptr // bytes, whole pages
	// shared: what one process writes its workers see.
	shared bool
	// fixed: only operations that are made for it change it.
	fixed bool
	// guarded is where stores, or loads too, are forbidden; empty: nowhere.
	guarded span
}

// span is from..to, in bytes of a region.
type span struct{ from, to uintptr }

func (s span) meets(off, n uintptr) bool { return off < s.to && off+n > s.from }

// regions are in the order in which they were made.
type regions []*region

// inherited are those that a worker has from its parent. Of a private mapping of a file
// that its parent changes the standard does not say whether pages that the worker has
// not written to follow.
func (rs regions) inherited() regions {
	var out regions
	for _, rg := range rs {
		if rg.name == "private file" {
			continue
		}
		c := *rg
		out = append(out, &c)
	}
	return out
}

func (rs regions) get(name string) *region {
	for _, rg := range rs {
		if rg.name == name {
			return rg
		}
	}
	panic("no region " + name)
}

// pick is any of those that everybody may write to.
func (rs regions) pick(r *rand.Rand) *region {
	for {
		if rg := rs[r.IntN(len(rs))]; !rg.fixed {
			return rg
		}
	}
}

// place is a place in a region of at most so many bytes that can be written.
func (rg *region) place(r *rand.Rand, most uintptr) (off, n uintptr) {
	for {
		n = 1 + uintptr(r.Uint64N(uint64(min(most, rg.size))))
		off = uintptr(r.Uint64N(uint64(rg.size - n + 1)))
		if !rg.guarded.meets(off, n) {
			return off, n
		}
	}
}

// pages is a place of whole pages.
func (rg *region) pages(r *rand.Rand, most uintptr) (off, n uintptr) {
	for {
		n = (1 + uintptr(r.Uint64N(uint64(min(most, rg.size/page))))) * page
		off = uintptr(r.Uint64N(uint64((rg.size-n)/page+1))) * page
		if !rg.guarded.meets(off, n) {
			return off, n
		}
	}
}

// Sizes of regions, in bytes. The odd ones end neither at a copy unit nor at a huge
// page.
const (
	anonSize   = 4<<20 + 5*page
	otherSize  = 1<<20 + 3*page
	stackSize  = 1 << 20
	stackSpare = 2 << 20 // that the thread's own stack may take
)

// makeRegions makes those that need no file.
func (g *guest) makeRegions(r *rand.Rand) error {
	type made struct {
		name  string
		size  uintptr
		prot  int
		flags int
		fixed bool
	}
	for _, m := range []made{
		{"anonymous", anonSize, readWrite, anonymous, false},
		{"movable", otherSize, readWrite, anonymous, true},
		{"growing", otherSize, readWrite, anonymous, true},
		{"code", 16 * page, readWrite | unix.PROT_EXEC, anonymous, true},
		{"shared anonymous", otherSize, readWrite, unix.MAP_SHARED | unix.MAP_ANONYMOUS, false},
		{"words", page, readWrite, unix.MAP_SHARED | unix.MAP_ANONYMOUS, true},
	} {
		addr, err := mmap(0, m.size, m.prot, m.flags, -1)
		if err != nil {
			return fmt.Errorf("region %s: %w", m.name, err)
		}
		g.addRegion(r, &region{name: m.name, addr: addr, size: m.size, shared: m.flags&unix.MAP_SHARED != 0, fixed: m.fixed})
	}
	if err := g.addMapped(r, "memfd", unix.MAP_SHARED, func() (int, error) { return unix.MemfdCreate("differential", unix.MFD_CLOEXEC) }); err != nil {
		return err
	}
	for _, more := range []func(*rand.Rand) error{g.addSysV, g.addHeap, g.addStack} {
		if err := more(r); err != nil {
			return err
		}
	}
	return nil
}

// addRegion fills most of it: some pages are never touched, and some are written to,
// with zeroes.
func (g *guest) addRegion(r *rand.Rand, rg *region) {
	for off := uintptr(0); off < rg.size; {
		n := min(uintptr(1+r.IntN(40))*page, rg.size-off)
		switch r.IntN(8) {
		case 0: // untouched
		case 1:
			clear(at(rg.addr+off, n))
		default:
			fill(rg.addr+off, n, r.Uint64())
		}
		off += n
	}
	g.regions = append(g.regions, rg)
}

// addMapped maps a new file, and keeps its descriptor. A private mapping is filled in
// its first half only: the other half is still the file's.
func (g *guest) addMapped(r *rand.Rand, name string, flags int, open func() (int, error)) error {
	fd, err := open()
	if err != nil {
		return fmt.Errorf("region %s: %w", name, err)
	}
	if err := unix.Ftruncate(fd, otherSize); err != nil {
		return fmt.Errorf("region %s: %w", name, err)
	}
	content := make([]byte, otherSize)
	fillBytes(content, r.Uint64())
	if _, err := unix.Pwrite(fd, content, 0); err != nil {
		return fmt.Errorf("region %s: %w", name, err)
	}
	addr, err := mmap(0, otherSize, readWrite, flags, fd)
	if err != nil {
		return fmt.Errorf("region %s: %w", name, err)
	}
	rg := &region{name: name, addr: addr, size: otherSize, shared: flags&unix.MAP_SHARED != 0}
	if flags&unix.MAP_PRIVATE != 0 {
		fill(addr, otherSize/2&^(page-1), r.Uint64())
	}
	g.regions = append(g.regions, rg)
	g.behind[name] = fd
	g.keep[fd] = true
	return nil
}

func fillBytes(b []byte, seed uint64) {
	if len(b) > 0 {
		fill(addrOf(b), uintptr(len(b)), seed)
	}
}

// addSysV attaches System V shared memory.
func (g *guest) addSysV(r *rand.Rand) error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, otherSize, unix.IPC_CREAT|0o600)
	if err != nil {
		return fmt.Errorf("shmget: %w", err)
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return fmt.Errorf("shmat: %w", err)
	}
	g.sysv = id
	g.addRegion(r, &region{name: "System V", addr: addrOf(b), size: otherSize, shared: true})
	return nil
}

// addHeap takes the break, which nothing else here uses.
func (g *guest) addHeap(r *rand.Rand) error {
	now, _, _ := syscall.RawSyscall(unix.SYS_BRK, 0, 0, 0)
	from := (now + page - 1) &^ (page - 1)
	if end, _, _ := syscall.RawSyscall(unix.SYS_BRK, from+otherSize, 0, 0); end != from+otherSize {
		return fmt.Errorf("brk: it is %#x, want %#x", end, from+otherSize)
	}
	g.addRegion(r, &region{name: "break", addr: from, size: otherSize})
	return nil
}

// addStack takes the deep end of the first thread's stack.
func (g *guest) addStack(r *rand.Rand) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if !strings.Contains(line, "[stack]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("maps: %q: %w", line, err)
		}
		if to-from < stackSize+stackSpare {
			return fmt.Errorf("the stack has %d bytes mapped", to-from)
		}
		g.addRegion(r, &region{name: "stack", addr: from, size: stackSize})
		return nil
	}
	return fmt.Errorf("no stack in %s", maps)
}

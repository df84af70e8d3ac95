package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lowerProgram is a file of the lower layer that is large enough to be mapped.
const lowerProgram = "/usr/bin/python3"

// makeFileRegions maps files of the writable layer, of tmpfs and of the lower layer.
func (g *guest) makeFileRegions(r *rand.Rand) error {
	for _, m := range []struct {
		name, path string
		flags      int
	}{
		{"private file", filepath.Join(layerDir, "private-file"), unix.MAP_PRIVATE},
		{"shared file", filepath.Join(layerDir, "shared-file"), unix.MAP_SHARED},
		{"shared tmpfs file", filepath.Join(tmpfsDir, "shared-file"), unix.MAP_SHARED},
		{"cut under its mapping", filepath.Join(layerDir, "cut-file"), unix.MAP_SHARED},
		{"pattern", filepath.Join(layerDir, "pattern"), unix.MAP_SHARED},
	} {
		open := func() (int, error) {
			f, err := g.newFile("behind "+m.name, m.path)
			if err != nil {
				return 0, err
			}
			f.fixed = true
			return f.fd, nil
		}
		if err := g.addMapped(r, m.name, m.flags, open); err != nil {
			return err
		}
	}
	g.regions.get("cut under its mapping").fixed = true
	g.regions.get("pattern").fixed = true
	// A mapping that nobody ever writes to shows the file as it is.
	view, err := mmap(0, otherSize, unix.PROT_READ, unix.MAP_PRIVATE, g.behind["private file"])
	if err != nil {
		return err
	}
	fd, err := unix.Open(lowerProgram, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lower, err := mmap(0, otherSize, readWrite, unix.MAP_PRIVATE, fd)
	if err != nil {
		return err
	}
	fill(lower+100*page, 50*page, r.Uint64())
	g.regions = append(g.regions,
		&region{name: "view of the private file", addr: view, size: otherSize, fixed: true},
		&region{name: "lower file", addr: lower, size: otherSize})
	return nil
}

// fileMappings are of files and memory both.
func fileMappings() []operation {
	return []operation{
		{"store into a mapping, read the file", true, true, storeThenRead},
		{"write a file, load from its mappings", true, true, writeThenLoad},
		{"a worker stores and reads by mapping and file", true, true, workerAndFile},
		{"a file changes behind its private mapping", true, true, changeBehind},
		{"map a file over anonymous memory", true, true, mapOver},
		{"truncate a file under its mapping, and let it grow", true, true, truncateUnder},
		{"exec a program that reads what is mapped", true, true, execReads},
	}
}

var sharedFiles = []string{"shared file", "shared tmpfs file"}

// sees compares memory with what pread gives.
func (g *guest) sees(name string, off, n uintptr) error {
	b := make([]byte, n)
	if err := whole(unix.Pread(g.behind[name], b, int64(off)))(int(n)); err != nil {
		return err
	}
	if !bytes.Equal(b, at(g.regions.get(name).addr+off, n)) {
		return fmt.Errorf("%s at %d: pread gives other bytes than loads from its mapping", name, off)
	}
	return nil
}

func storeThenRead(g *guest, r *rand.Rand) (string, error) {
	for _, name := range sharedFiles {
		rg := g.regions.get(name)
		off, n := rg.place(r, 200_000)
		g.fill(rg.addr+off, n, r.Uint64())
		if err := g.sees(name, off, n); err != nil {
			return "", err
		}
	}
	return "", nil
}

func writeThenLoad(g *guest, r *rand.Rand) (string, error) {
	for _, name := range sharedFiles {
		rg, fd := g.regions.get(name), g.behind[name]
		off, n := rg.place(r, 200_000)
		b := make([]byte, n)
		fillBytes(b, r.Uint64())
		if !g.left() {
			if err := whole(unix.Pwrite(fd, b, int64(off)))(int(n)); err != nil {
				return "", err
			}
		}
		if err := g.sees(name, off, n); err != nil {
			return "", err
		}
		for _, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
			addr, err := mmap(0, rg.size, unix.PROT_READ, flags, fd)
			if err != nil {
				return "", err
			}
			same := bytes.Equal(at(addr+off, n), at(rg.addr+off, n))
			munmap(addr, rg.size)
			if !same {
				return "", fmt.Errorf("%s at %d: a new mapping (flags %d) shows other bytes than the old one", name, off, flags)
			}
		}
	}
	return "", nil
}

func workerAndFile(g *guest, r *rand.Rand) (string, error) {
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	for _, name := range sharedFiles {
		rg := g.regions.get(name)
		off, n := rg.place(r, 100_000)
		if _, _, err := w.do(doFill, rg.addr+off, n, uintptr(r.Uint64())); err != nil {
			return "", err
		}
		if err := g.sees(name, off, n); err != nil {
			return "", fmt.Errorf("stored by %s: %w", w.name, err)
		}
		off, n = rg.place(r, 100_000)
		b := make([]byte, n)
		fillBytes(b, r.Uint64())
		if err := whole(unix.Pwrite(g.behind[name], b, int64(off)))(int(n)); err != nil {
			return "", err
		}
		if got, err := w.seen(off, n, rg); err != nil || got != sum(addrOf(b), n) {
			return "", fmt.Errorf("%s at %d: %s does not load what was written to the file (%w)", name, off, w.name, err)
		}
	}
	return w.name, nil
}

// changeBehind: pages of a private mapping that have been written to do not follow
// their file, and a mapping that was never written to does. Of others the standard says
// nothing, so each page is written to before its file changes.
func changeBehind(g *guest, r *rand.Rand) (string, error) {
	rg, view := g.regions.get("private file"), g.regions.get("view of the private file")
	off, n := rg.pages(r, 60)
	g.stride(rg.addr+off, n, page, r.Uint64())
	before := sum(rg.addr+off, n)
	b := make([]byte, n)
	fillBytes(b, r.Uint64())
	if !g.left() {
		if err := whole(unix.Pwrite(g.behind["private file"], b, int64(off)))(int(n)); err != nil {
			return "", err
		}
	}
	if sum(rg.addr+off, n) != before {
		return "", fmt.Errorf("%s at %d: pages that were written to follow the file", rg.name, off)
	}
	now := make([]byte, n)
	if err := whole(unix.Pread(g.behind["private file"], now, int64(off)))(int(n)); err != nil {
		return "", err
	}
	if !bytes.Equal(now, at(view.addr+off, n)) {
		return "", fmt.Errorf("%s at %d: it does not show the file", view.name, off)
	}
	return "", nil
}

// mapOver maps a file, which never changes, over a piece of anonymous memory.
func mapOver(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("anonymous")
	off, n := rg.pages(r, 40)
	addr, err := mmap(rg.addr+off, n, readWrite, unix.MAP_PRIVATE|unix.MAP_FIXED, g.behind["pattern"])
	if err != nil {
		return "", err
	}
	if !bytes.Equal(at(addr, n), at(g.regions.get("pattern").addr, n)) {
		return "", fmt.Errorf("%d bytes at %d are not those of the file that was mapped there", n, off)
	}
	g.fill(addr+n/3, n/2, r.Uint64())
	return "", nil
}

// truncateUnder: behind the end of the file loads fault, and what grows again is zero.
func truncateUnder(g *guest, r *rand.Rand) (string, error) {
	rg, fd := g.regions.get("cut under its mapping"), g.behind["cut under its mapping"]
	cut := uintptr(r.Uint64N(uint64(rg.size)))
	if err := unix.Ftruncate(fd, int64(cut)); err != nil {
		return "", err
	}
	end := (cut + page - 1) &^ (page - 1)
	if i := notZero(at(rg.addr+cut, end-cut)); i >= 0 {
		return "", fmt.Errorf("byte %d behind the end at %d is not zero", i, cut)
	}
	if end < rg.size && !faults(func() { sum(rg.addr+end, 1) }) {
		return "", fmt.Errorf("a page behind the end at %d can be loaded", cut)
	}
	if err := unix.Ftruncate(fd, int64(rg.size)); err != nil {
		return "", err
	}
	if i := notZero(at(rg.addr+cut, rg.size-cut)); i >= 0 {
		return "", fmt.Errorf("byte %d of what has grown from %d is not zero", i, cut)
	}
	off, n := rg.place(r, 500_000)
	g.fill(rg.addr+off, n, r.Uint64())
	if r.IntN(2) == 0 {
		return "", nil
	}
	return "it stays cut", unix.Ftruncate(fd, int64(off+n/2))
}

func execReads(g *guest, r *rand.Rand) (string, error) {
	var result string
	for _, name := range sharedFiles {
		rg := g.regions.get(name)
		off, n := rg.place(r, 9000)
		g.fill(rg.addr+off, n, r.Uint64())
		out, err := exec.Command("/proc/self/exe", "hash", g.file("behind "+name).path).Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			return "", err
		}
		if want := fmt.Sprintf("%x", sha256.Sum256(at(rg.addr, rg.size))); string(out) != want {
			return "", fmt.Errorf("%s: another program reads %s, here it is %s", name, out, want)
		}
		result += string(out)
	}
	return result, nil
}

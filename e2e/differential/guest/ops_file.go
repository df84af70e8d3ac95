package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// fileWrites change what is in files.
func fileWrites() []operation {
	return []operation{
		{"write a file at random places", false, true, writeFiles},
		{"pwritev", false, true, writeVector},
		{"append", false, true, appendTo},
		{"truncate and extend", false, true, truncate},
		{"fallocate behind the end", false, true, allocate},
		{"punch a hole", false, true, punch},
		{"write by O_DIRECT", false, true, writeDirect},
		{"sendfile from file to file", false, true, sendFile},
		{"splice from file to file", false, true, spliceFile},
		{"copy_file_range", false, true, copyRange},
		{"store through a new shared mapping", false, true, storeMapped},
		{"a byte in each mebibyte of the large files", false, true, touchLarge},
		{"zeroes over a piece of a file", false, true, zeroFile},
		{"fsync", false, true, syncFile},
	}
}

// put is a write of n bytes that may be left out.
func (g *guest) put(f *file, off, n int64, seed uint64) error {
	if g.left() {
		return nil
	}
	return f.write(off, n, seed)
}

func writeFiles(g *guest, r *rand.Rand) (string, error) {
	for range 20 {
		f := g.anyFile(r)
		off, n := f.place(r, 70_000)
		if r.IntN(3) == 0 {
			n = 1
		}
		if err := g.put(f, off, n, r.Uint64()); err != nil {
			return "", err
		}
	}
	return "", nil
}

func writeVector(g *guest, r *rand.Rand) (string, error) {
	f := g.anyFile(r)
	off, n := f.place(r, 150_000)
	b := make([]byte, n)
	fillBytes(b, r.Uint64())
	cut := r.Int64N(n + 1)
	if g.left() {
		return "", nil
	}
	got, err := unix.Pwritev(f.fd, [][]byte{b[:cut], b[cut:]}, off)
	return "", whole(got, err)(len(b))
}

func appendTo(g *guest, r *rand.Rand) (string, error) {
	f := g.file("log")
	fd, err := unix.Open(f.path, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for range 10 {
		b := make([]byte, 1+r.IntN(5000))
		fillBytes(b, r.Uint64())
		if err := whole(unix.Write(fd, b))(len(b)); err != nil {
			return "", err
		}
	}
	return fmt.Sprint(f.size()), nil
}

// truncate cuts files, and lets some grow again: what is new is zero.
func truncate(g *guest, r *rand.Rand) (string, error) {
	for _, name := range []string{"cut", "medium", "tmpfs medium"} {
		f := g.file(name)
		cut := r.Int64N(f.size() + 1)
		if err := unix.Ftruncate(f.fd, cut); err != nil {
			return "", err
		}
		more := 1 + r.Int64N(500_000)
		if err := unix.Ftruncate(f.fd, cut+more); err != nil {
			return "", err
		}
		b := make([]byte, more)
		if err := whole(unix.Pread(f.fd, b, cut))(len(b)); err != nil {
			return "", err
		}
		if i := notZero(b); i >= 0 {
			return "", fmt.Errorf("%s: byte %d behind what was cut off at %d is not zero", name, i, cut)
		}
		if err := g.put(f, cut+more/2, more/4+1, r.Uint64()); err != nil {
			return "", err
		}
	}
	return "", nil
}

func allocate(g *guest, r *rand.Rand) (string, error) {
	f := g.file([]string{"cut", "tmpfs small"}[r.IntN(2)])
	from, n := f.size(), 1+r.Int64N(300_000)
	if err := unix.Fallocate(f.fd, 0, from, n); err != nil {
		return wordOf(err), nil
	}
	b := make([]byte, n)
	if err := whole(unix.Pread(f.fd, b, from))(len(b)); err != nil {
		return "", err
	}
	if i := notZero(b); i >= 0 {
		return "", fmt.Errorf("%s: byte %d of what was allocated is not zero", f.name, i)
	}
	return "", g.put(f, from+n/2, n/2, r.Uint64())
}

func punch(g *guest, r *rand.Rand) (string, error) {
	f := g.file("punched")
	off, n := r.Int64N(f.size()), 1+r.Int64N(200_000)
	err := unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	return wordOf(err), g.put(f, r.Int64N(f.size()), 5000, r.Uint64())
}

func writeDirect(g *guest, r *rand.Rand) (string, error) {
	f := g.file("medium")
	fd, err := unix.Open(f.path, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return wordOf(err), nil
	}
	defer unix.Close(fd)
	b := alignedBuffer()[:(1+r.IntN(16))*page]
	fillBytes(b, r.Uint64())
	if g.left() {
		return "", nil
	}
	got, err := unix.Pwrite(fd, b, r.Int64N(f.size()/page+1)*page)
	return "", whole(got, err)(len(b))
}

// fromTo are two files and places in them.
func (g *guest) fromTo(r *rand.Rand) (from, to *file, off, at int64, n int) {
	from = g.anyFile(r)
	for to = g.anyFile(r); to == from; to = g.anyFile(r) {
	}
	off, at, n = r.Int64N(from.size()), r.Int64N(to.size()+1), 1+r.IntN(120_000)
	return from, to, off, at, int(min(int64(n), from.size()-off))
}

func sendFile(g *guest, r *rand.Rand) (string, error) {
	from, to, off, at, n := g.fromTo(r)
	if g.left() {
		return "", nil
	}
	if _, err := unix.Seek(to.fd, at, io.SeekStart); err != nil {
		return "", err
	}
	for done := 0; done < n; {
		got, err := unix.Sendfile(to.fd, from.fd, &off, n-done)
		if err != nil || got == 0 {
			return "", fmt.Errorf("%s to %s: %d of %d bytes: %w", from.name, to.name, done, n, err)
		}
		done += got
	}
	return fmt.Sprintf("%s to %s", from.name, to.name), nil
}

func spliceFile(g *guest, r *rand.Rand) (string, error) {
	from, to, off, at, n := g.fromTo(r)
	if g.left() {
		return "", nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return "", err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	for done := 0; done < n; {
		in, err := unix.Splice(from.fd, &off, fds[1], nil, n-done, 0)
		if err != nil || in == 0 {
			return "", fmt.Errorf("%s into a pipe: %d of %d bytes: %w", from.name, done, n, err)
		}
		for in > 0 {
			out, err := unix.Splice(fds[0], nil, to.fd, &at, int(in), 0)
			if err != nil || out == 0 {
				return "", fmt.Errorf("a pipe into %s: %w", to.name, err)
			}
			in, done = in-out, done+int(out)
		}
	}
	return fmt.Sprintf("%s to %s", from.name, to.name), nil
}

func copyRange(g *guest, r *rand.Rand) (string, error) {
	from, to, off, at, n := g.fromTo(r)
	if g.left() {
		return "", nil
	}
	got, err := unix.CopyFileRange(from.fd, &off, to.fd, &at, n, 0)
	return fmt.Sprintf("%s to %s, %d bytes: %s", from.name, to.name, got, wordOf(err)), nil
}

func storeMapped(g *guest, r *rand.Rand) (string, error) {
	for range 4 {
		f := g.anyFile(r)
		size := f.size()
		if size == 0 {
			continue
		}
		addr, err := mmap(0, uintptr(size), readWrite, unix.MAP_SHARED, f.fd)
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		off := r.Int64N(size)
		n := min(1+r.Int64N(100_000), size-off)
		g.fill(addr+uintptr(off), uintptr(n), r.Uint64())
		b := make([]byte, n)
		err = whole(unix.Pread(f.fd, b, off))(len(b))
		if err == nil && sum(addrOf(b), uintptr(n)) != sum(addr+uintptr(off), uintptr(n)) {
			err = fmt.Errorf("%s at %d: pread gives other bytes than were stored", f.name, off)
		}
		munmap(addr, uintptr(size))
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func touchLarge(g *guest, r *rand.Rand) (string, error) {
	for _, name := range []string{"dense", "sparse"} {
		f := g.file(name)
		for off := r.Int64N(1 << 20); off < f.size(); off += 1 << 20 {
			if name == "sparse" && r.IntN(4) > 0 {
				continue // it stays sparse
			}
			if err := g.put(f, off, 1, r.Uint64()); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

func zeroFile(g *guest, r *rand.Rand) (string, error) {
	f := g.anyFile(r)
	off, n := f.place(r, 60_000)
	if g.left() {
		return "", nil
	}
	got, err := unix.Pwrite(f.fd, make([]byte, n), off)
	return "", whole(got, err)(int(n))
}

func syncFile(g *guest, r *rand.Rand) (string, error) {
	f := g.anyFile(r)
	off, n := f.place(r, 20_000)
	return "", errors.Join(g.put(f, off, n, r.Uint64()), unix.Fsync(f.fd), unix.Fdatasync(f.fd))
}

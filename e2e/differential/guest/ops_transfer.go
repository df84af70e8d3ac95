package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// transfers have the kernel store into memory and read from it.
func transfers() []operation {
	return []operation{
		{"read, pread, readv and preadv into memory", true, false, readInto},
		{"recv into memory", true, false, receiveInto},
		{"write(2), pwritev and send from memory", true, false, writeFrom},
		{"process_vm_writev into memory", true, false, vmWriteInto},
		{"read a file into memory, and write memory into it", true, true, fileAndMemory},
		{"sendfile and splice what is mapped", true, true, sendMapped},
	}
}

// across is a place of at most 150,000 bytes that often goes over a boundary of 64 KiB.
func across(rg *region, r *rand.Rand) (addr, n uintptr) {
	for {
		off, n := rg.place(r, 150_000)
		if edge := (off + n/2) &^ (1<<16 - 1); r.IntN(2) == 0 && edge > n/2 {
			off = edge - n/2
		}
		if off+n <= rg.size && !rg.guarded.meets(off, n) {
			return rg.addr + off, n
		}
	}
}

// readInto reads a memfd's content into regions in four ways.
func readInto(g *guest, r *rand.Rand) (string, error) {
	fd, err := unix.MemfdCreate("content", unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	content := make([]byte, 200_000)
	for i := range 4 {
		fillBytes(content, r.Uint64())
		if _, err := unix.Pwrite(fd, content, 0); err != nil {
			return "", err
		}
		addr, n := across(g.regions.pick(r), r)
		b := at(addr, n)
		if g.left() {
			continue
		}
		if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
			return "", err
		}
		cut := r.IntN(len(b) + 1)
		got := 0
		switch i {
		case 0:
			got, err = unix.Read(fd, b)
		case 1:
			got, err = unix.Pread(fd, b, 777)
		case 2:
			got, err = unix.Readv(fd, [][]byte{b[:cut], b[cut:]})
		case 3:
			got, err = unix.Preadv(fd, [][]byte{b[cut:], b[:cut]}, 99)
		}
		if err := whole(got, err)(len(b)); err != nil {
			return "", fmt.Errorf("way %d: %w", i, err)
		}
	}
	return "", nil
}

func receiveInto(g *guest, r *rand.Rand) (string, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	content := make([]byte, 30_000)
	for range 3 {
		addr, n := across(g.regions.pick(r), r)
		b := at(addr, min(n, uintptr(len(content))))
		fillBytes(content, r.Uint64())
		if g.left() {
			continue
		}
		if err := whole(unix.Write(pair[0], content[:len(b)]))(len(b)); err != nil {
			return "", fmt.Errorf("send: %w", err)
		}
		got, _, err := unix.Recvfrom(pair[1], b, unix.MSG_WAITALL)
		if err := whole(got, err)(len(b)); err != nil {
			return "", fmt.Errorf("recv: %w", err)
		}
	}
	return "", nil
}

// writeFrom has the kernel read memory: what comes out must be what loads see.
func writeFrom(g *guest, r *rand.Rand) (string, error) {
	fd, err := unix.MemfdCreate("out", unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	h := sha256.New()
	for i := range 6 {
		addr, n := across(g.regions.pick(r), r)
		b := at(addr, min(n, 60_000))
		out := make([]byte, len(b))
		switch i % 3 {
		case 0:
			err = errors.Join(whole(unix.Pwrite(fd, b, 5))(len(b)), whole(unix.Pread(fd, out, 5))(len(b)))
		case 1:
			cut := r.IntN(len(b) + 1)
			err = errors.Join(whole(unix.Pwritev(fd, [][]byte{b[:cut], b[cut:]}, 3))(len(b)), whole(unix.Pread(fd, out, 3))(len(b)))
		case 2:
			err = errors.Join(whole(unix.Write(pair[0], b))(len(b)), readAll(pair[1], out))
		}
		if err != nil {
			return "", fmt.Errorf("way %d: %w", i%3, err)
		}
		if at, err := differs(b, out, nil, func(int, []byte) error { return nil }); at >= 0 || err != nil {
			return "", fmt.Errorf("way %d: byte %d of %d came out as another than loads see", i%3, at, len(b))
		}
		h.Write(out)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func vmWriteInto(g *guest, r *rand.Rand) (string, error) {
	self := &worker{pid: os.Getpid()}
	for range 3 {
		addr, n := across(g.regions.pick(r), r)
		b := make([]byte, n)
		fillBytes(b, r.Uint64())
		if g.left() {
			continue
		}
		if err := self.vmWrite(addr, b); err != nil {
			return "", err
		}
	}
	return "", nil
}

func fileAndMemory(g *guest, r *rand.Rand) (string, error) {
	h := sha256.New()
	for range 3 {
		f, rg := g.anyFile(r), g.regions.pick(r)
		addr, n := across(rg, r)
		b := at(addr, n)
		off, _ := f.place(r, 1)
		if !g.left() {
			got, err := unix.Pread(f.fd, b, off)
			if err != nil {
				return "", fmt.Errorf("%s into %s: %w", f.name, rg.name, err)
			}
			h.Write(b[:got])
		}
		addr, n = across(g.regions.pick(r), r)
		to := g.anyFile(r)
		off, _ = to.place(r, 1)
		if g.left() {
			continue
		}
		if err := whole(unix.Pwrite(to.fd, at(addr, n), off))(int(n)); err != nil {
			return "", fmt.Errorf("memory into %s: %w", to.name, err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// sendMapped sends a file that has been written by stores into its shared mapping.
func sendMapped(g *guest, r *rand.Rand) (string, error) {
	rg, fd := g.regions.get("shared file"), g.behind["shared file"]
	off, n := rg.place(r, 60_000)
	g.fill(rg.addr+off, n, r.Uint64())
	send := throughPipe("", func(out int, off int64, n int) (int, error) { return unix.Sendfile(out, fd, &off, n) })
	move := throughPipe("", func(out int, off int64, n int) (int, error) {
		moved, err := unix.Splice(fd, &off, out, nil, n, 0)
		return int(moved), err
	})
	h := sha256.New()
	for _, w := range []way{send, move} {
		read, done, err := w.open()
		if err != nil {
			return "", err
		}
		b := make([]byte, n)
		err = read(int64(off), b)
		done()
		if err != nil {
			return "", err
		}
		want := at(rg.addr+off, n)
		if at, _ := differs(want, b, nil, func(int, []byte) error { return nil }); at >= 0 {
			return "", fmt.Errorf("byte %d is sent as %#x, and was stored as %#x", off+uintptr(at), b[at], want[at])
		}
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

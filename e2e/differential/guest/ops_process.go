package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processes are done with others that were forked: before a save, or now.
func processes() []operation {
	return []operation{
		{"fork: who writes what is seen by whom", true, false, forkAndWrite},
		{"a new worker", true, false, addWorker},
		{"kill a worker", true, false, killWorker},
		{"a worker writes", true, false, workerWrites},
		{"a worker unmaps and gives back", true, false, workerUnmaps},
		{"a fault ends a child by SIGSEGV", true, false, faultKills},
		{"fork and exec", true, false, forkExec},
		{"a futex between two processes", true, false, futexTurns},
		{"leave a worker in a futex", true, false, futexLeave},
		{"wake the worker from its futex", true, false, futexWake},
		{"process_vm_readv and writev of a worker", true, false, vmOfWorker},
		{"ptrace: peek and poke a worker", true, false, peekAndPoke},
	}
}

// seenBy sums what a worker sees of a region.
func (w *worker) seen(off, n uintptr, rg *region) (uint64, error) {
	got, _, err := w.do(doSum, rg.addr+off, n)
	return got, err
}

// forkAndWrite: a child sees its parent's memory; then each writes and sees its own,
// but for what they share.
func forkAndWrite(g *guest, r *rand.Rand) (result string, err error) {
	child, err := fork("child", g.regions, g.keep)
	if err != nil {
		return "", err
	}
	defer func() {
		_, eerr := child.end(false)
		err = errors.Join(err, eerr)
	}()
	for _, name := range []string{"anonymous", "break", "stack", "movable", "shared anonymous", "memfd", "System V"} {
		rg := g.regions.get(name)
		off, n := rg.place(r, 300_000)
		before := sum(rg.addr+off, n)
		if got, err := child.seen(off, n, rg); err != nil || got != before {
			return "", fmt.Errorf("%s at %d: the child sees other bytes than its parent (%w)", name, off, err)
		}
		if _, _, err := child.do(doFill, rg.addr+off, n/2, uintptr(r.Uint64())); err != nil {
			return "", err
		}
		changed := sum(rg.addr+off, n) != before
		if changed != rg.shared && n > 16 {
			return "", fmt.Errorf("%s at %d: the parent sees what its child writes: %v, want %v", name, off, changed, rg.shared)
		}
		mid, err := child.seen(off, n, rg)
		if err != nil {
			return "", err
		}
		g.fill(rg.addr+off+n/4, n/2, r.Uint64())
		after, err := child.seen(off, n, rg)
		if err != nil {
			return "", err
		}
		if changed := after != mid; changed != rg.shared && n > 16 {
			return "", fmt.Errorf("%s at %d: the child sees what its parent writes later: %v, want %v", name, off, changed, rg.shared)
		}
		result += fmt.Sprintf("%x ", after)
	}
	return result, nil
}

func addWorker(g *guest, _ *rand.Rand) (string, error) {
	w, err := g.newWorker()
	if err != nil {
		return "", err
	}
	return w.name, nil
}

func killWorker(g *guest, r *rand.Rand) (string, error) {
	if len(g.workers) < 2 {
		_, err := g.newWorker()
		return "one more", err
	}
	i := r.IntN(len(g.workers))
	w := g.workers[i]
	g.workers = append(g.workers[:i:i], g.workers[i+1:]...)
	status, err := w.end(true)
	return fmt.Sprint(w.name, " ", status.Signal()), err
}

// workerWrites: what is private its parent must not see.
func workerWrites(g *guest, r *rand.Rand) (string, error) {
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	for range 12 {
		rg := w.regions.pick(r)
		off, n := rg.place(r, 70_000)
		kind, args := uint64(doFill), []uintptr{rg.addr + off, n, uintptr(r.Uint64())}
		if r.IntN(3) == 0 {
			kind, args = doStride, []uintptr{rg.addr + off, n, page, uintptr(r.Uint64())}
		}
		own := rg.addr + off
		before := uint64(0)
		if !rg.shared && g.regions.get(rg.name).guarded.to == 0 {
			before = sum(own, n)
		}
		if g.left() {
			continue
		}
		if _, _, err := w.do(kind, args...); err != nil {
			return "", err
		}
		if before != 0 && sum(own, n) != before {
			return "", fmt.Errorf("%s at %d: the parent sees what %s writes into private memory", rg.name, off, w.name)
		}
	}
	return w.name, nil
}

func workerUnmaps(g *guest, r *rand.Rand) (string, error) {
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	rg := w.regions.get("anonymous")
	off, n := rg.pages(r, 40)
	fixed := uintptr(anonymous | unix.MAP_FIXED)
	none := ^uintptr(0)
	more, m := rg.pages(r, 40)
	for _, call := range [][]uintptr{
		{unix.SYS_MUNMAP, rg.addr + off, n},
		{unix.SYS_MMAP, rg.addr + off, n, readWrite, fixed, none, 0},
		{unix.SYS_MADVISE, rg.addr + more, m, unix.MADV_DONTNEED},
		{unix.SYS_MPROTECT, rg.addr + off, n, unix.PROT_READ},
		{unix.SYS_MPROTECT, rg.addr + off, n, readWrite},
	} {
		if _, errno, err := w.syscall(call[0], call[1:]...); err != nil || errno != 0 {
			return "", fmt.Errorf("system call %d: %s (%w)", call[0], word(errno), err)
		}
	}
	_, _, err = w.do(doFill, rg.addr+off, n/2, uintptr(r.Uint64()))
	return w.name, err
}

// faultKills stores to memory that forbids it, in a child.
func faultKills(g *guest, r *rand.Rand) (string, error) {
	rg := g.regions.get("anonymous")
	child, err := fork("child", g.regions, g.keep)
	if err != nil {
		return "", err
	}
	off, n := rg.pages(r, 20)
	if _, errno, err := child.syscall(unix.SYS_MPROTECT, rg.addr+off, n, unix.PROT_READ); err != nil || errno != 0 {
		return "", fmt.Errorf("mprotect: %s (%w)", word(errno), err)
	}
	if err := child.begin(doFill, rg.addr+off+n-1, 1, 1); err != nil {
		return "", err
	}
	if _, _, err := child.finish(); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("a child that stores to memory that it may only read goes on (%w)", err)
	}
	status, err := child.end(false)
	if err == nil && (!status.Signaled() || status.Signal() != syscall.SIGSEGV) {
		err = fmt.Errorf("it ended by status %#x, want SIGSEGV", int(status))
	}
	g.fill(rg.addr+off, n, r.Uint64())
	return "", err
}

// forkExec has a child, which has all memory of its parent, become another program.
func forkExec(g *guest, r *rand.Rand) (string, error) {
	child, err := fork("child", g.regions, g.keep)
	if err != nil {
		return "", err
	}
	rg := g.regions.get("anonymous")
	off, n := rg.place(r, 100_000)
	if _, _, err := child.do(doFill, rg.addr+off, n, uintptr(r.Uint64())); err != nil {
		return "", err
	}
	words := [][]byte{[]byte("/proc/self/exe\x00"), []byte("hash\x00"), []byte("/proc/self/exe\x00")}
	argv := []uintptr{addrOf(words[0]), addrOf(words[1]), addrOf(words[2]), 0}
	if _, errno, err := child.syscall(unix.SYS_DUP3, child.out, 1, 0); err != nil || errno != 0 {
		return "", fmt.Errorf("dup3: %s (%w)", word(errno), err)
	}
	// The child is a copy from before these were made.
	addr, err := child.mapBytes(words, argv)
	if err != nil {
		return "", err
	}
	if err := child.begin(doSyscall, unix.SYS_EXECVE, addr.path, addr.argv, addr.argv+uintptr(len(argv)-1)*8); err != nil {
		return "", err
	}
	runtime.KeepAlive(words)
	got, err := io.ReadAll(child.answers)
	if err != nil {
		return "", err
	}
	status, err := child.end(false)
	if err == nil && status.ExitStatus() != 0 {
		err = fmt.Errorf("status %#x: %s", int(status), got)
	}
	return string(got), err
}

// execArgs are addresses in a child.
type execArgs struct{ path, argv uintptr }

// mapBytes gives a child the arguments of an exec.
func (w *worker) mapBytes(words [][]byte, argv []uintptr) (execArgs, error) {
	got, errno, err := w.syscall(unix.SYS_MMAP, 0, page, readWrite, anonymous, ^uintptr(0), 0)
	if err != nil || errno != 0 {
		return execArgs{}, fmt.Errorf("mmap: %s (%w)", word(errno), err)
	}
	table := make([]byte, page)
	at := uintptr(len(argv) * 8)
	for i, b := range words {
		argv[i] = uintptr(got) + at
		at += uintptr(copy(table[at:], b))
	}
	copy(table, unsafe.Slice((*byte)(unsafe.Pointer(&argv[0])), len(argv)*8))
	return execArgs{argv[0], uintptr(got)}, w.vmWrite(uintptr(got), table)
}

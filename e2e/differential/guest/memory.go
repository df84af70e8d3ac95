package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const page = 4096

// Memory is addressed by number here: it is not Go's, and some of it is another
// process's.

func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// at gives n bytes of memory as a slice.
func at(addr, n uintptr) []byte { return unsafe.Slice((*byte)(pointer(addr)), n) }

// fill writes n bytes that follow from a seed. It and the next two also run in a child
// that was forked without the language's runtime, so they must not need its stack.
//
//go:nosplit
//go:norace
func fill(addr, n uintptr, seed uint64) {
	x := seed | 1
	for n >= 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		*(*uint64)(pointer(addr)) = x
		addr, n = addr+8, n-8
	}
	for ; n > 0; addr, n = addr+1, n-1 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		*(*byte)(pointer(addr)) = byte(x >> 32)
	}
}

// stride writes one byte at every step-th of n bytes.
//
//go:nosplit
//go:norace
func stride(addr, n, step uintptr, seed uint64) {
	for off := uintptr(0); off < n; off += step {
		seed = seed*6364136223846793005 + 1442695040888963407
		*(*byte)(pointer(addr + off)) = byte(seed >> 33)
	}
}

// sum reads n bytes by loads.
//
//go:nosplit
//go:norace
func sum(addr, n uintptr) uint64 {
	h := uint64(n)
	for ; n >= 8; addr, n = addr+8, n-8 {
		h = (h ^ *(*uint64)(pointer(addr))) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	for ; n > 0; addr, n = addr+1, n-1 {
		h = (h ^ uint64(*(*byte)(pointer(addr)))) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// faults runs f and reports whether it touched memory that does not let it: SIGSEGV or
// SIGBUS.
func faults(f func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch e := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			fault = true
		default:
			panic(e)
		}
	}()
	f()
	return false
}

// mmap is the system call.
func mmap(addr, n uintptr, prot, flags, fd int) (uintptr, error) {
	got, _, errno := syscall.Syscall6(unix.SYS_MMAP, addr, n, uintptr(prot), uintptr(flags), uintptr(fd), 0)
	if errno != 0 {
		return 0, fmt.Errorf("mmap of %d bytes: %w", n, errno)
	}
	return got, nil
}

// munmap unmaps what this process has mapped: where that fails nothing else is sound.
func munmap(addr, n uintptr) {
	if _, _, errno := syscall.Syscall(unix.SYS_MUNMAP, addr, n, 0); errno != 0 {
		panic(fmt.Sprintf("munmap: %v", errno))
	}
}

const (
	readWrite = unix.PROT_READ | unix.PROT_WRITE
	anonymous = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
)

// word is the name of an error number, "ok" for none.
func word(errno syscall.Errno) string {
	if errno == 0 {
		return "ok"
	}
	return unix.ErrnoName(errno)
}

// wordOf is the same for an error that a system call gave.
func wordOf(err error) string {
	if err == nil {
		return "ok"
	}
	var errno syscall.Errno
	switch e := err.(type) {
	case syscall.Errno:
		errno = e
	case *os.PathError:
		return wordOf(e.Err)
	case *os.SyscallError:
		return wordOf(e.Err)
	default:
		return err.Error()
	}
	return word(errno)
}

// vmRead reads memory of a process with process_vm_readv, and returns how much came.
func vmRead(pid int, addr uintptr, into []byte) (int, error) {
	local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
	return unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: addr, Len: len(into)}}, 0)
}

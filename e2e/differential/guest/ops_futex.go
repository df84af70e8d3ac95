package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futexes, which are of more than one process here.
const (
	futexWaitOp = 0
	futexWakeOp = 1
)

// futexTurns has two processes wait for each other at words in shared memory.
func futexTurns(g *guest, r *rand.Rand) (string, error) {
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	words := g.regions.get("words")
	for turn := range 5 {
		addr := words.addr + uintptr(r.IntN(100)+1)*4
		value := uintptr(*(*uint32)(pointer(addr)))
		if err := w.begin(doSyscall, unix.SYS_FUTEX, addr, futexWaitOp, value, 0, 0, 0); err != nil {
			return "", err
		}
		if err := wake(addr); err != nil {
			return "", err
		}
		if _, errno, err := w.finish(); err != nil || errno != 0 {
			return "", fmt.Errorf("turn %d: the worker waits: %s (%w)", turn, word(errno), err)
		}
		if _, _, err := w.do(doFill, addr, 4, uintptr(r.Uint64())); err != nil {
			return "", err
		}
		if err := waitFor(w, addr); err != nil {
			return "", fmt.Errorf("turn %d: %w", turn, err)
		}
	}
	return w.name, nil
}

// wake wakes who waits at a word, once he does.
func wake(addr uintptr) error {
	for {
		n, _, errno := syscall.Syscall6(unix.SYS_FUTEX, addr, futexWakeOp, 1, 0, 0, 0)
		if errno != 0 || n == 1 {
			return wordError(errno)
		}
		runtime.Gosched()
	}
}

func wordError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// waitFor waits at a word until a worker wakes this process.
func waitFor(w *worker, addr uintptr) error {
	woken := make(chan error, 1)
	go func() {
		for {
			n, errno, err := w.syscall(unix.SYS_FUTEX, addr, futexWakeOp, 1, 0, 0, 0)
			if err != nil || errno != 0 || n == 1 {
				woken <- errors.Join(err, wordError(errno))
				return
			}
		}
	}()
	value := uintptr(*(*uint32)(pointer(addr)))
	var errno syscall.Errno
	for again := true; again; again = errno == syscall.EINTR {
		_, _, errno = syscall.Syscall6(unix.SYS_FUTEX, addr, futexWaitOp, value, 0, 0, 0)
	}
	return errors.Join(wordError(errno), <-woken)
}

// futexLeave leaves a worker waiting at the first word, across what comes.
func futexLeave(g *guest, r *rand.Rand) (string, error) {
	if w := g.sleeper(); w != nil {
		return w.name + " waits", nil
	}
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	addr := g.regions.get("words").addr
	if err := w.begin(doSyscall, unix.SYS_FUTEX, addr, futexWaitOp, uintptr(*(*uint32)(pointer(addr))), 0, 0, 0); err != nil {
		return "", err
	}
	w.waiting = true
	return w.name, nil
}

func (g *guest) sleeper() *worker {
	for _, w := range g.workers {
		if w.waiting {
			return w
		}
	}
	return nil
}

func futexWake(g *guest, _ *rand.Rand) (string, error) {
	w := g.sleeper()
	if w == nil {
		return "nobody waits", nil
	}
	if err := wake(g.regions.get("words").addr); err != nil {
		return "", err
	}
	_, errno, err := w.finish()
	w.waiting = false
	if err == nil && errno != 0 {
		err = errno
	}
	return w.name, err
}

// vmOfWorker reads and writes a worker's memory from outside.
func vmOfWorker(g *guest, r *rand.Rand) (string, error) {
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	for range 4 {
		rg := w.regions.pick(r)
		off, n := rg.place(r, 100_000)
		b := make([]byte, n)
		if err := whole(vmRead(w.pid, rg.addr+off, b))(int(n)); err != nil {
			return "", fmt.Errorf("%s: %w", rg.name, err)
		}
		if got, err := w.seen(off, n, rg); err != nil || got != sum(addrOf(b), n) {
			return "", fmt.Errorf("%s at %d: read from outside it is another than %s loads (%w)", rg.name, off, w.name, err)
		}
		fillBytes(b, r.Uint64())
		if g.left() {
			continue
		}
		if err := w.vmWrite(rg.addr+off, b); err != nil {
			return "", fmt.Errorf("%s: %w", rg.name, err)
		}
		if got, err := w.seen(off, n, rg); err != nil || got != sum(addrOf(b), n) {
			return "", fmt.Errorf("%s at %d: %s does not see what was written from outside (%w)", rg.name, off, w.name, err)
		}
	}
	return w.name, nil
}

// peekAndPoke does the same as a debugger.
func peekAndPoke(g *guest, r *rand.Rand) (_ string, err error) {
	w, err := g.idle(r)
	if err != nil {
		return "", err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(w.pid); err != nil {
		return "attach: " + wordOf(err), nil
	}
	defer func() { err = errors.Join(err, syscall.PtraceDetach(w.pid)) }()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(w.pid, &status, 0, nil); err != nil || !status.Stopped() {
		return "", fmt.Errorf("it does not stop: status %#x (%w)", int(status), err)
	}
	for range 10 {
		rg := w.regions.pick(r)
		off, _ := rg.place(r, 1)
		off &^= 7
		var peeked, read, poke [8]byte
		*(*uint64)(unsafe.Pointer(&poke)) = r.Uint64()
		if rg.guarded.meets(off, 8) {
			continue
		}
		if _, err := syscall.PtracePeekData(w.pid, rg.addr+off, peeked[:]); err != nil {
			return "", fmt.Errorf("peek: %w", err)
		}
		if _, err := vmRead(w.pid, rg.addr+off, read[:]); err != nil || read != peeked {
			return "", fmt.Errorf("%s at %d: a debugger peeks %x, process_vm_readv gives %x (%w)", rg.name, off, peeked, read, err)
		}
		if _, err := syscall.PtracePokeData(w.pid, rg.addr+off, poke[:]); err != nil {
			return "", fmt.Errorf("poke: %w", err)
		}
	}
	return w.name, nil
}

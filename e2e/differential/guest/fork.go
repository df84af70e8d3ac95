package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a worker can be told to do.
const (
	doSyscall = iota // number, six arguments → result, error number
	doFill           // addr, n, seed
	doStride         // addr, n, step, seed
	doSum            // addr, n → sum
)

// worker is a process that was forked, all memory included, and does single things on
// command: no more than that can be done without the language's runtime.
type worker struct {
	name    string
	pid     int
	cmd     *os.File
	answers *os.File
	out     uintptr // the pipe of its answers, as it has it
	regions regions
	// waiting: it is left in a futex and takes no commands.
	waiting bool
}

// fork makes a worker, which has the regions as they are now. keep are the descriptors
// that it keeps.
func fork(name string, rs regions, keep map[int]bool) (*worker, error) {
	var cmd, ans [2]int
	// Blocking, for the worker's sake.
	if err := errors.Join(unix.Pipe2(cmd[:], unix.O_CLOEXEC), unix.Pipe2(ans[:], unix.O_CLOEXEC)); err != nil {
		return nil, err
	}
	in, out := uintptr(cmd[0]), uintptr(ans[1])
	defer unix.Close(cmd[0])
	defer unix.Close(ans[1])
	pid, errno := forkServant(in, out)
	if errno != 0 {
		return nil, fmt.Errorf("fork: %w", errno)
	}
	w := &worker{
		name: name, pid: int(pid), out: out, regions: rs.inherited(),
		cmd: os.NewFile(uintptr(cmd[1]), "commands"), answers: os.NewFile(uintptr(ans[0]), "answers"),
	}
	// A connection that it also held would not end with the one of its parent.
	for fd := range 256 {
		if uintptr(fd) == in || uintptr(fd) == out || fd < 3 || keep[fd] {
			continue
		}
		if _, _, err := w.syscall(unix.SYS_CLOSE, uintptr(fd)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// forkServant forks the process as the system call does: the child has this thread
// alone. It must not come to any point where the runtime would switch to another
// thread, grow the stack or take a signal, so all signals are blocked; one that the
// child causes itself ends it then.
//
//go:noinline
//go:norace
func forkServant(in, out uintptr) (pid uintptr, errno syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, before := ^uint64(0), uint64(0)
	return forkBlocked(in, out, &all, &before)
}

//go:nosplit
//go:noinline
//go:norace
func forkBlocked(in, out uintptr, all, before *uint64) (pid uintptr, errno syscall.Errno) {
	_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(all)), uintptr(unsafe.Pointer(before)), 8, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 && errno == 0 {
		serveCommands(in, out)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(before)), 0, 8, 0, 0)
	return pid, errno
}

// serveCommands is what the child does, until its parent closes the pipe.
//
//go:nosplit
//go:noinline
//go:norace
func serveCommands(in, out uintptr) {
	var c [8]uint64
	var a [2]uint64
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, in, uintptr(unsafe.Pointer(&c)), 64)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 || n != 64 {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		a[0], a[1] = 0, 0
		switch c[0] {
		case doSyscall:
			r, _, errno := syscall.RawSyscall6(uintptr(c[1]), uintptr(c[2]), uintptr(c[3]), uintptr(c[4]), uintptr(c[5]), uintptr(c[6]), uintptr(c[7]))
			a[0], a[1] = uint64(r), uint64(errno)
		case doFill:
			fill(uintptr(c[1]), uintptr(c[2]), c[3])
		case doStride:
			stride(uintptr(c[1]), uintptr(c[2]), uintptr(c[3]), c[4])
		case doSum:
			a[0] = sum(uintptr(c[1]), uintptr(c[2]))
		}
		syscall.RawSyscall(unix.SYS_WRITE, out, uintptr(unsafe.Pointer(&a)), 16)
	}
}

// begin gives a command, finish waits for its answer.
func (w *worker) begin(kind uint64, args ...uintptr) error {
	var c [8]uint64
	c[0] = kind
	for i, a := range args {
		c[i+1] = uint64(a)
	}
	if _, err := w.cmd.Write(binaryWords(c[:])); err != nil {
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
	return nil
}

func binaryWords(words []uint64) (b []byte) {
	for _, x := range words {
		b = binary.NativeEndian.AppendUint64(b, x)
	}
	return b
}

func (w *worker) finish() (uint64, syscall.Errno, error) {
	var b [16]byte
	if _, err := io.ReadFull(w.answers, b[:]); err != nil {
		return 0, 0, fmt.Errorf("worker %s does not answer: %w", w.name, err)
	}
	return binary.NativeEndian.Uint64(b[:]), syscall.Errno(binary.NativeEndian.Uint64(b[8:])), nil
}

func (w *worker) do(kind uint64, args ...uintptr) (uint64, syscall.Errno, error) {
	if err := w.begin(kind, args...); err != nil {
		return 0, 0, err
	}
	return w.finish()
}

func (w *worker) syscall(nr uintptr, args ...uintptr) (uint64, syscall.Errno, error) {
	return w.do(doSyscall, append([]uintptr{nr}, args...)...)
}

// end closes its pipe, or kills it, and returns how it ended.
func (w *worker) end(kill bool) (syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	if kill {
		if err := syscall.Kill(w.pid, syscall.SIGKILL); err != nil {
			return status, err
		}
	}
	err := errors.Join(w.cmd.Close(), w.answers.Close())
	for {
		_, werr := syscall.Wait4(w.pid, &status, 0, nil)
		if werr != syscall.EINTR {
			return status, errors.Join(err, werr)
		}
	}
}

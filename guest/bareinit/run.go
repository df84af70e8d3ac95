package bareinit

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the entry point uses: the goroutine is all zero, so that its stack has no
// end to be checked.
var (
	entered   bool
	goroutine [1024]byte
	tls       [64]byte
)

// The assembly calls these.
var (
	_ = run
	_ = child
	_ = &goroutine
	_ = &tls
)

// Linked reports whether the program starts at our entry point, so that it can
// be called as "init".
func Linked() bool { return entered }

var (
	socket    uintptr = Socket
	frame     [HeaderSize + MaxAnswer]byte
	pollFDs   [2]unix.PollFd
	sigInfo   [4 * 128]byte // struct signalfd_siginfo, of which there is one for many signals
	status    uint32
	waitFlags uintptr = unix.WNOHANG
	// started has a bit for each process that the agent asked for and that has
	// not been reaped. Its pages come into being as they are needed.
	started [(1 << 22) / 8]byte
)

// run is the life of init.
func run() {
	signals, step, errno := setup()
	if step != 0 {
		answer2(KindFailed, step, errno)
		exit(1)
	}
	send(KindReady, 0)
	pollFDs[0] = unix.PollFd{Fd: int32(socket), Events: unix.POLLIN}
	pollFDs[1] = unix.PollFd{Fd: int32(signals), Events: unix.POLLIN}
	for {
		_, errno := call(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&pollFDs)), 2, 0, 0)
		if errno != 0 {
			continue // a signal that cannot be blocked
		}
		if pollFDs[1].Revents != 0 {
			call(unix.SYS_READ, signals, uintptr(unsafe.Pointer(&sigInfo)), uintptr(len(sigInfo)), 0)
			reap()
		}
		if pollFDs[0].Revents != 0 {
			receive()
		}
	}
}

// reap takes the ends of processes and reports those that the agent asked for.
func reap() {
	for {
		pid, errno := call(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&status)), waitFlags, 0)
		if errno != 0 || pid == 0 {
			return
		}
		if isStarted(pid) {
			started[pid/8] &^= 1 << (pid % 8)
			answer2(KindExited, uint32(pid), status)
		}
	}
}

func isStarted(pid uintptr) bool {
	return pid/8 < uintptr(len(started)) && started[pid/8]&(1<<(pid%8)) != 0
}

// answer2 sends a frame of two words.
func answer2(kind byte, a, b uint32) {
	putWord(frame[HeaderSize:], a)
	putWord(frame[HeaderSize+4:], b)
	send(kind, 8)
}

// answer3 sends a frame of three words.
func answer3(kind byte, a, b, c uint32) {
	putWord(frame[HeaderSize:], a)
	putWord(frame[HeaderSize+4:], b)
	putWord(frame[HeaderSize+8:], c)
	send(kind, 12)
}

// send sends a frame whose payload of n bytes is in place. When the agent does
// not take it there is nothing left to live for.
func send(kind byte, n uintptr) {
	putWord(frame[:], uint32(n))
	frame[4] = kind
	for at := uintptr(0); at < HeaderSize+n; {
		w, errno := call(unix.SYS_WRITE, socket, uintptr(unsafe.Pointer(&frame[at])), HeaderSize+n-at, 0)
		if errno != 0 && errno != uint32(unix.EINTR) {
			exit(2)
		}
		if errno == 0 {
			at += w
		}
	}
}

func putWord(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

func word(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// call makes a system call.
//
//go:nosplit
//go:norace
func call(number, a, b, c, d uintptr) (uintptr, uint32) {
	r, _, errno := syscall.RawSyscall6(number, a, b, c, d, 0, 0)
	return r, uint32(errno)
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		call(unix.SYS_EXIT_GROUP, code, 0, 0, 0)
	}
}

// text returns the address of a string that ends with a NUL.
func text(s string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(s))) }

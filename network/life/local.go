package life

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// local is our end of the socketpair whose other end is the client's.
//
// A unix socket has no RST. But the kernel gives ECONNRESET to the peer of a
// socket that is closed with unread bytes in it, also when it is closed because
// its process was killed. So one byte always stays unread in ours: at first one
// that we put there before the client got its end, then the last that the client
// sent, which has been looked at (SO_PEEK_OFF) and passed on. Only the clean end
// takes it out. Without this, a client could not tell a killed connection from a
// complete one.
type local struct {
	file *os.File
	conn syscall.RawConn
}

// buffers hold what is on its way from a client. Idle connections hold none.
var buffers = sync.Pool{New: func() any { return new([bufferSize + 1]byte) }}

const (
	bufferSize = 64 << 10
	glance     = 4 << 10
)

func newLocal() (ours *local, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours = &local{file: os.NewFile(uintptr(fds[0]), "dialed")}
	theirs = os.NewFile(uintptr(fds[1]), "dialed")
	if _, err = unix.Write(fds[1], []byte{0}); err == nil {
		err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PEEK_OFF, 1)
	}
	if err == nil {
		ours.conn, err = ours.file.SyscallConn()
	}
	if err != nil {
		ours.file.Close()
		theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return ours, theirs, nil
}

// read waits for bytes of the client and gives them to use, which must not keep
// them. It returns false when the client has ended its stream.
func (l *local) read(use func([]byte) error) (bool, error) {
	var buf *[bufferSize + 1]byte
	defer func() {
		if buf != nil {
			buffers.Put(buf)
		}
	}()
	n, errno := 0, syscall.Errno(0)
	err := l.conn.Read(func(fd uintptr) bool {
		if buf == nil {
			buf = buffers.Get().(*[bufferSize + 1]byte)
		}
		if n, errno = take(fd, buf); errno == unix.EAGAIN {
			buffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil || n == 0 {
		return false, err
	}
	return true, use(buf[1 : n+1])
}

// take puts n new bytes into buf[1:n+1] and leaves the last of them in the
// socket; buf[0] is for the one that had been left there. Few are looked at and
// then read, which copies them twice; of many, those behind a first glance are
// only read.
func take(fd uintptr, buf *[bufferSize + 1]byte) (n int, errno syscall.Errno) {
	n, errno = recv(fd, buf[1:1+glance], unix.MSG_PEEK)
	if errno != 0 || n == 0 {
		return 0, errno
	}
	want := n
	if n == glance {
		queued, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if err != nil {
			return 0, unix.EIO
		}
		want = min(queued-1, bufferSize)
	}
	done := 0
	for done < n {
		m, errno := recv(fd, buf[done:want], 0)
		if errno != 0 || m == 0 {
			return 0, unix.EIO // cannot be: the bytes were there
		}
		done += m
	}
	if done > n {
		n = done
		_, errno = recv(fd, buf[n:n+1], unix.MSG_PEEK)
	}
	return n, errno
}

// recv is recvfrom without the sender's address, and without a wait.
func recv(fd uintptr, b []byte, flags int) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// waitHangup returns true when the client has closed its end altogether, false
// when wake was called.
func (l *local) waitHangup() bool {
	hup := false
	err := l.conn.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd)}}
		unix.Ppoll(p, &unix.Timespec{}, nil)
		hup = p[0].Revents&unix.POLLHUP != 0
		return hup
	})
	return err == nil && hup
}

// wakeReader makes read and waitHangup return, wake everything.
func (l *local) wakeReader() { l.file.SetReadDeadline(time.Unix(1, 0)) }
func (l *local) wake()       { l.file.SetDeadline(time.Unix(1, 0)) }

// endWrite tells the client that the guest has ended its stream.
func (l *local) endWrite() {
	l.conn.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
}

// settle makes close a clean end: the byte that was left is taken out.
func (l *local) settle() {
	l.conn.Control(func(fd uintptr) {
		var b [1]byte
		recv(fd, b[:], 0)
	})
}

// close ends the client's connection, with ECONNRESET unless settle was called.
func (l *local) close() { l.file.Close() }

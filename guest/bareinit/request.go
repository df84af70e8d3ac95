package bareinit

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

var (
	header   [HeaderSize]byte
	payload  [MaxRequest + 1]byte // one more: a NUL behind the last string
	iov      unix.Iovec
	msg      unix.Msghdr
	control  [64]byte // for the control message of up to three descriptors
	passed   [3]uintptr
	nPassed  int
	pointers [MaxStrings + 4]uintptr // argument and environment vectors
	req      request
)

// request is what the child is to do; all addresses are into payload and pointers.
type request struct {
	terminal, cwdOptional bool
	uid, gid              uintptr
	groups, nGroups       uintptr
	cgroup                uintptr // 0 for none
	cwd                   uintptr
	candidates            []uintptr
	argv, envp            uintptr
}

// receive reads a frame and does what it says.
func receive() {
	receiveHeader()
	n := word(header[:])
	if n > MaxRequest {
		exit(3)
	}
	readFull(uintptr(unsafe.Pointer(&payload)), uintptr(n))
	switch header[4] {
	case KindSpawn:
		spawn(n)
	case KindSignal:
		if n == 8 && isStarted(uintptr(word(payload[:]))) {
			call(unix.SYS_KILL, uintptr(word(payload[:])), uintptr(word(payload[4:])), 0, 0)
		}
	case KindNotify:
		if n == 12 {
			notify(word(payload[:]), word(payload[4:]), word(payload[8:]))
		}
	}
	for i := range nPassed {
		call(unix.SYS_CLOSE, passed[i], 0, 0, 0)
	}
	if n > 64<<10 {
		// Pages that an unusually long request has touched are given back.
		start := (uintptr(unsafe.Pointer(&payload)) + 4095) &^ 4095
		call(unix.SYS_MADVISE, start, (MaxRequest-4096)&^4095, unix.MADV_DONTNEED, 0)
	}
}

// receiveHeader reads the header and the descriptors that come with it.
func receiveHeader() {
	iov.Base, iov.Len = &header[0], HeaderSize
	msg.Iov, msg.Iovlen = &iov, 1
	msg.Control, msg.Controllen = &control[0], uint64(len(control))
	n, errno := call(unix.SYS_RECVMSG, socket, uintptr(unsafe.Pointer(&msg)), unix.MSG_CMSG_CLOEXEC, 0)
	if errno != 0 || n == 0 {
		exit(0) // the agent has closed its end
	}
	nPassed = 0
	const headerLen = 16 // struct cmsghdr
	if msg.Controllen >= headerLen && word(control[8:]) == unix.SOL_SOCKET && word(control[12:]) == unix.SCM_RIGHTS {
		for at := headerLen; at+4 <= int(word(control[:])) && nPassed < len(passed); at += 4 {
			passed[nPassed] = uintptr(word(control[at:]))
			nPassed++
		}
	}
	readFull(uintptr(unsafe.Pointer(&header))+n, HeaderSize-n)
}

func readFull(at, n uintptr) {
	for n > 0 {
		r, errno := call(unix.SYS_READ, socket, at, n, 0)
		if errno == uint32(unix.EINTR) {
			continue
		}
		if errno != 0 || r == 0 {
			exit(0)
		}
		at, n = at+r, n-r
	}
}

// parse makes payload's first n bytes a request.
func parse(n uint32) bool {
	if n < RequestWords*4 {
		return false
	}
	groups, candidates := word(payload[WordGroups*4:]), word(payload[WordCandidates*4:])
	args, env := word(payload[WordArgs*4:]), word(payload[WordEnv*4:])
	flags := word(payload[WordFlags*4:])
	if groups > (n-RequestWords*4)/4 || candidates == 0 || args == 0 ||
		candidates > MaxStrings || args > MaxStrings || env > MaxStrings || candidates+args+env > MaxStrings {
		return false
	}
	req.terminal, req.cwdOptional = flags&FlagTerminal != 0, flags&FlagCwdOptional != 0
	req.uid, req.gid = uintptr(word(payload[WordUID*4:])), uintptr(word(payload[WordGID*4:]))
	req.groups, req.nGroups = uintptr(unsafe.Pointer(&payload[RequestWords*4])), uintptr(groups)
	payload[n] = 0
	at := RequestWords*4 + groups*4
	var ok bool
	none := payload[at] == 0
	if req.cgroup, at, ok = next(at, n); !ok {
		return false
	}
	if none {
		req.cgroup = 0
	}
	if req.cwd, at, ok = next(at, n); !ok {
		return false
	}
	// Candidates, arguments, 0, environment, 0.
	slot := 0
	for i := range candidates + args + env {
		if i == candidates+args {
			pointers[slot] = 0
			slot++
		}
		if pointers[slot], at, ok = next(at, n); !ok {
			return false
		}
		slot++
	}
	if env == 0 {
		pointers[slot] = 0
		slot++
	}
	pointers[slot] = 0
	req.candidates = pointers[:candidates]
	req.argv = uintptr(unsafe.Pointer(&pointers[candidates]))
	req.envp = uintptr(unsafe.Pointer(&pointers[candidates+args+1]))
	return at == n
}

// next returns the address of the string at an offset, and the offset behind it.
func next(at, n uint32) (uintptr, uint32, bool) {
	for end := at; end < n; end++ {
		if payload[end] == 0 {
			return uintptr(unsafe.Pointer(&payload[at])), end + 1, true
		}
	}
	return 0, n, false
}

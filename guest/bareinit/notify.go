package bareinit

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// notice is a signal that the next child is to send; without a pid it starts a
// program.
var notice signalTo

type signalTo struct{ uid, pid, signal uintptr }

// notify sends a signal with the rights of a user, and answers. A child of its own
// takes that user's ids: the kernel then decides, at the moment of the signal,
// whether he may send it, and whoever has the number by then is the one it is for.
func notify(uid, pid, signal uint32) {
	// 0 and what is negative as a pid would be whole groups.
	if int32(pid) <= 1 {
		answer3(KindStarted, 0, StepNotified, uint32(unix.ESRCH))
		return
	}
	notice = signalTo{uintptr(uid), uintptr(pid), uintptr(signal)}
	failedErrno = 0
	clone = cloneArgs{
		cloneFlags: unix.CLONE_VM | unix.CLONE_VFORK, cloneExitSignal: uint64(unix.SIGCHLD),
		cloneStack: uint64(uintptr(unsafe.Pointer(&childStack))), cloneStackSize: uint64(unsafe.Sizeof(childStack)),
	}
	sender := vfork(&clone)
	notice = signalTo{}
	if int(sender) < 0 {
		answer3(KindStarted, 0, StepNotified, uint32(-int(sender)))
		return
	}
	call(unix.SYS_WAIT4, sender, 0, 0, 0)
	answer3(KindStarted, 0, StepNotified, failedErrno)
}

// send is what the child does.
//
//go:nosplit
//go:norace
func (s *signalTo) send() uint32 {
	if _, errno := call(unix.SYS_SETRESUID, s.uid, s.uid, s.uid, 0); errno != 0 {
		return errno
	}
	_, errno := call(unix.SYS_KILL, s.pid, s.signal, 0, 0)
	return errno
}

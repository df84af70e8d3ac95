package bareinit

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args of clone3, whose fields are all of 64 bits.
type cloneArgs [11]uint64

// Fields of cloneArgs.
const (
	cloneFlags      = 0
	cloneExitSignal = 4
	cloneStack      = 5
	cloneStackSize  = 6
	cloneCgroup     = 10
)

// vfork runs child in a new process that shares our memory, and returns its
// number when it has called exec or ended; or a negative errno.
func vfork(args *cloneArgs) uintptr

var (
	clone      cloneArgs
	childStack [1 << 10][16]byte // aligned as the processor wants it
	// failedStep and failedErrno are the child's last words.
	failedStep, failedErrno uint32
)

// spawn starts a process as payload's first n bytes say, and answers.
func spawn(n uint32) {
	if nPassed != len(passed) || !parse(n) {
		answer3(KindStarted, 0, StepForm, uint32(unix.EINVAL))
		return
	}
	clone = cloneArgs{
		cloneFlags: unix.CLONE_VM | unix.CLONE_VFORK, cloneExitSignal: uint64(unix.SIGCHLD),
		cloneStack: uint64(uintptr(unsafe.Pointer(&childStack))), cloneStackSize: uint64(unsafe.Sizeof(childStack)),
	}
	if req.cgroup != 0 {
		fd, errno := openCgroup()
		if errno != 0 {
			answer3(KindStarted, 0, StepCgroup, errno)
			return
		}
		clone[cloneFlags] |= unix.CLONE_INTO_CGROUP
		clone[cloneCgroup] = uint64(fd)
	}
	failedStep, failedErrno = 0, 0
	pid := vfork(&clone)
	if req.cgroup != 0 {
		call(unix.SYS_CLOSE, uintptr(clone[cloneCgroup]), 0, 0, 0)
	}
	switch {
	case int(pid) < 0:
		answer3(KindStarted, 0, StepClone, uint32(-int(pid)))
	case failedStep != 0:
		call(unix.SYS_WAIT4, pid, 0, 0, 0)
		answer3(KindStarted, 0, failedStep, failedErrno)
	default:
		if pid/8 < uintptr(len(started)) {
			started[pid/8] |= 1 << (pid % 8)
		}
		answer3(KindStarted, uint32(pid), 0, 0)
	}
}

// openCgroup opens the control group through the users' read-only mount, so that
// whoever gets hold of the descriptor can change nothing with it.
func openCgroup() (uintptr, uint32) {
	at := unix.AT_FDCWD
	return call(unix.SYS_OPENAT, uintptr(at), req.cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// child is what the new process does until it has become another program.
//
//go:nosplit
//go:norace
func child() {
	if notice.pid != 0 {
		failedErrno = notice.send()
		exit(0)
	}
	if step, errno := become(); step != 0 {
		failedStep, failedErrno = step, errno
		exit(127)
	}
	failedErrno = execute()
	failedStep = StepExec
	exit(127)
}

//go:nosplit
//go:norace
func become() (step, errno uint32) {
	if _, errno := call(unix.SYS_SETSID, 0, 0, 0, 0); errno != 0 {
		return StepSession, errno
	}
	if req.terminal {
		if _, errno := call(unix.SYS_IOCTL, passed[0], unix.TIOCSCTTY, 0, 0); errno != 0 {
			return StepSession, errno
		}
	}
	// What was passed has numbers above 2: those below are in use.
	for i := uintptr(0); i < 3; i++ {
		if _, errno := call(unix.SYS_DUP3, passed[i], i, 0, 0); errno != 0 {
			return StepSession, errno
		}
	}
	if _, errno := call(unix.SYS_SETGROUPS, req.nGroups, req.groups, 0, 0); errno != 0 {
		return StepUser, errno
	}
	if _, errno := call(unix.SYS_SETGID, req.gid, 0, 0, 0); errno != 0 {
		return StepUser, errno
	}
	if _, errno := call(unix.SYS_SETUID, req.uid, 0, 0, 0); errno != 0 {
		return StepUser, errno
	}
	_, errno = call(unix.SYS_CHDIR, req.cwd, 0, 0, 0)
	if errno != 0 && req.cwdOptional {
		_, errno = call(unix.SYS_CHDIR, uintptr(unsafe.Pointer(&root)), 0, 0, 0)
	}
	if errno != 0 {
		return StepCwd, errno
	}
	call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&unblocked)), 0, 8)
	return 0, 0
}

var root = [2]byte{'/', 0}

// execute tries one file after the other, and returns why none could be executed.
//
//go:nosplit
//go:norace
func execute() uint32 {
	last := uint32(unix.ENOENT)
	for i := 0; i < len(req.candidates); i++ {
		_, errno := call(unix.SYS_EXECVE, req.candidates[i], req.argv, req.envp, 0)
		switch errno {
		case uint32(unix.ENOENT), uint32(unix.ENOTDIR):
		case uint32(unix.EACCES):
			last = errno // of a file that is there, should there be no other
		default:
			return errno
		}
	}
	return last
}

package bareinit

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var (
	capHeader unix.CapUserHeader
	capData   [2]unix.CapUserData
	// blocked is all signals: none may end init. Those that a fault raises and
	// SIGKILL and SIGSTOP are not affected.
	blocked   uint64 = ^uint64(0)
	unblocked uint64
	childMask uint64 = 1 << (uint64(unix.SIGCHLD) - 1)
)

// setup makes the new mount namespace the users': without the agent's file
// system, with a /proc that shows the new PID namespace only and the boot id of this
// life, and with control groups and /run/cube read-only. Then it gives up what users
// must not have.
func setup() (signals uintptr, step, errno uint32) {
	call(unix.SYS_UMASK, 0o022, 0, 0, 0)
	if errno := mounts(); errno != 0 {
		return 0, StepMounts, errno
	}
	if errno := capabilities(); errno != 0 {
		return 0, StepCapabilities, errno
	}
	_, errno = call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&blocked)), 0, 8)
	if errno != 0 {
		return 0, StepSignals, errno
	}
	signals, errno = call(unix.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&childMask)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
	if errno != 0 {
		return 0, StepSignals, errno
	}
	call(unix.SYS_FCNTL, socket, unix.F_SETFD, unix.FD_CLOEXEC, 0)
	return signals, 0, 0
}

func mounts() uint32 {
	const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	empty := text("\x00")
	if errno := mount(empty, text("/\x00"), empty, unix.MS_REC|unix.MS_PRIVATE); errno != 0 {
		return errno
	}
	// Not being mounted is well: somebody else packed the agent. So is the
	// directory's being gone or a link: users' root may have seen to that.
	_, errno := call(unix.SYS_UMOUNT2, text("/boot\x00"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW, 0, 0)
	if errno != 0 && errno != uint32(unix.EINVAL) && errno != uint32(unix.ENOENT) && errno != uint32(unix.ENOTDIR) {
		return errno
	}
	if _, errno := call(unix.SYS_UMOUNT2, text("/proc\x00"), unix.MNT_DETACH, 0, 0); errno != 0 {
		return errno
	}
	if errno := mount(text("proc\x00"), text("/proc\x00"), text("proc\x00"), strict); errno != 0 {
		return errno
	}
	if errno := mount(empty, text("/sys/fs/cgroup\x00"), empty, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|strict); errno != 0 {
		return errno
	}
	// Where the agent shows what users are to know. Users' root may have moved what
	// leads to it.
	if errno := mount(empty, text(".\x00"), empty, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|strict); errno != 0 {
		return errno
	}
	if errno := mountBootID(); errno != 0 {
		return errno
	}
	_, errno = call(unix.SYS_CHDIR, text("/\x00"), 0, 0, 0)
	return errno
}

// mountBootID shows users the agent's file in the place of the kernel's, which
// says the same in every copy of an image.
func mountBootID() uint32 {
	const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	empty, at := text("\x00"), text("/proc/sys/kernel/random/boot_id\x00")
	if errno := mount(text("boot_id\x00"), at, empty, unix.MS_BIND); errno != 0 {
		return errno
	}
	return mount(empty, at, empty, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|strict)
}

func mount(source, target, fs, flags uintptr) uint32 {
	_, _, errno := syscall.RawSyscall6(unix.SYS_MOUNT, source, target, fs, flags, 0, 0)
	return uint32(errno)
}

// capabilities takes from this process, and from everything that it will start,
// what is not in UserCapabilities.
func capabilities() uint32 {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if UserCapabilities&(1<<c) != 0 {
			continue
		}
		if _, errno := call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0); errno != 0 && errno != uint32(unix.EINVAL) {
			return errno
		}
	}
	capHeader.Version = unix.LINUX_CAPABILITY_VERSION_3
	capData[0] = unix.CapUserData{Effective: uint32(UserCapabilities & (1<<32 - 1)), Permitted: uint32(UserCapabilities & (1<<32 - 1))}
	capData[1] = unix.CapUserData{Effective: uint32(UserCapabilities >> 32), Permitted: uint32(UserCapabilities >> 32)}
	_, errno := call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHeader)), uintptr(unsafe.Pointer(&capData)), 0, 0)
	return errno
}

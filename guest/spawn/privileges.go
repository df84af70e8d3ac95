package spawn

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"cubesandbox/guest/agentapi"

	"golang.org/x/sys/unix"
)

// UserCapabilities is what root among the users has: Docker's default, and
// SYS_PTRACE for debuggers. SYS_ADMIN is not among them: with it root could
// mount, unmount and enter namespaces.
const UserCapabilities uint64 = 1<<unix.CAP_AUDIT_WRITE | 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL | 1<<unix.CAP_MKNOD |
	1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SETFCAP | 1<<unix.CAP_SETGID |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_SETUID | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_SYS_PTRACE

// InfoDir is where the sandbox's id and generation stand, read-only for users.
const InfoDir = "/run/cube"

// enterNamespaces makes the new mount namespace the users': without the agent's
// file system, with a /proc that shows the new PID namespace only, and with the
// cgroups and InfoDir read-only.
func enterNamespaces() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Unmount(agentapi.MountPoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", agentapi.MountPoint, err)
	}
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the agent's /proc: %w", err)
	}
	const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", strict, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range []string{"/sys/fs/cgroup", InfoDir} {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|strict, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", dir, err)
		}
	}
	return unix.Chdir("/")
}

// dropCapabilities takes from all threads of the process, and from everything
// that it will start, what is not in UserCapabilities.
func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if UserCapabilities&(1<<c) != 0 {
			continue
		}
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 && e != unix.EINVAL {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, e)
		}
	}
	hdr, data := capabilities(UserCapabilities)
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0); e != 0 {
		return fmt.Errorf("set capabilities: %w", e)
	}
	return nil
}

// SetCapabilities makes set the calling thread's effective and permitted
// capabilities; nothing is inheritable.
func SetCapabilities(set uint64) error {
	hdr, data := capabilities(set)
	return unix.Capset(&hdr, &data[0])
}

func capabilities(set uint64) (unix.CapUserHeader, *[2]unix.CapUserData) {
	return unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3},
		&[2]unix.CapUserData{
			{Effective: uint32(set), Permitted: uint32(set)},
			{Effective: uint32(set >> 32), Permitted: uint32(set >> 32)},
		}
}

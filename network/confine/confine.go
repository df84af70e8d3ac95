// Package confine takes from cube-network everything that it does not need,
// before it reads the first byte that a guest sent.
//
// The process is started as root and executes itself once: Drop takes away what
// belongs to a thread (user, capabilities, namespaces, root directory), which in a
// Go program only an exec makes true of every thread; the second image asks Check
// whether it all holds, and Seal adds the system call filter.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inherited is how many descriptors survive Drop: 0 to 2, and the listener.
const inherited = 4

// limits of the process, never above what it was started with: its starter says
// how many descriptors there are (one a life and one a connection). Memory is the
// business of its cgroup.
var limits = map[int]uint64{
	unix.RLIMIT_CORE:     0,
	unix.RLIMIT_MEMLOCK:  0,
	unix.RLIMIT_MSGQUEUE: 0,
	unix.RLIMIT_NOFILE:   1 << 20,
	unix.RLIMIT_NPROC:    1 << 10, // threads of this user
}

// secureBits: being root gives nothing, and no way leads back.
const secureBits = 1<<0 | 1<<1 | // NOROOT, locked
	1<<2 | 1<<3 | // NO_SETUID_FIXUP, locked
	1<<5 | // KEEP_CAPS off, locked
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE, locked

// Drop gives up everything and executes the program again, with the same
// arguments. It returns only when it fails, and the process must then end: part
// of it may be done. The caller is root; the program's file must be executable
// for everybody.
func Drop(uid, gid int) error {
	if uid <= 0 || gid <= 0 {
		return fmt.Errorf("drop to uid %d, gid %d: both must be positive", uid, gid)
	}
	runtime.LockOSThread() // what follows is of this thread; exec ends all others
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the program: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"close descriptors", func() error {
			return unix.CloseRange(inherited, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC)
		}},
		{"new namespaces", func() error {
			return unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP)
		}},
		{"host name", func() error { return unix.Sethostname([]byte("network")) }},
		{"empty root directory", emptyRoot},
		{"limits", setLimits},
		{"bounding set", emptyBoundingSet},
		{"secure bits", func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0) }},
		{"groups", func() error { return raw(unix.SYS_SETGROUPS, 0, 0, 0) }},
		{"gid", func() error { return raw(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)) }},
		{"uid", func() error { return raw(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)) }},
		{"capabilities", emptyCapabilities},
		{"no new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("confine: %s: %w", step.name, err)
		}
	}
	return fmt.Errorf("confine: execute the program again (it must be executable for everybody): %w", execute(self))
}

// raw makes a system call for this thread alone; those of package syscall are
// made for all threads.
func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// emptyRoot makes a read-only directory without entries the only thing that can
// be seen of any file system.
func emptyRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("empty", "/proc", "tmpfs", flags, "mode=0555,nr_inodes=2,size=4k"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return err
	}
	// Old and new root at one place: the old one is then on top and goes.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY|flags, "")
}

func setLimits() error {
	for what, n := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return fmt.Errorf("limit %d: %w", what, err)
		}
		n = min(n, now.Max)
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("limit %d: %w", what, err)
		}
	}
	return nil
}

func emptyBoundingSet() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient set: %w", err)
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_SYS_PTRACE {
			return nil // beyond the last
		}
		if err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
}

func emptyCapabilities() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&h, &none[0])
}

// kept are the variables of the environment that the program still gets.
var kept = []string{"GODEBUG", "GOGC", "GOMEMLIMIT", "GOTRACEBACK"}

func execute(file int) error {
	argv, err := pointers(os.Args)
	if err != nil {
		return err
	}
	env := []string{"TZ="} // no file to read the zone from
	for _, k := range kept {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	envp, err := pointers(env)
	if err != nil {
		return err
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(file), uintptr(unsafe.Pointer(&[]byte{0}[0])),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}

// pointers makes a vector of C strings, with a nil behind the last.
func pointers(ss []string) ([]*byte, error) {
	ps := make([]*byte, len(ss)+1)
	for i, s := range ss {
		p, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, err
		}
		ps[i] = p
	}
	return ps, nil
}

// Package cgroup keeps the users' processes in control groups inside the
// sandbox: one below Root for each started process with all its descendants, so
// that they can be counted, limited and killed as a whole.
//
// gVisor enforces pids.max and cgroup.kill here, but no memory limit.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	mount = "/sys/fs/cgroup"
	// Root is the control group of all users' processes.
	Root = mount + "/user"
	// Init is the name of the group that holds init, beside Root. Users' root may
	// trace init, so the group is limited too: it is no way around Root's limit.
	Init      = "init"
	initGroup = mount + "/" + Init
	initPids  = 64
)

// Setup mounts the control groups where the sandbox's spec did not, and makes Root.
func Setup() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(mount, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		if err := unix.Mount("cgroup2", mount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount cgroup2 on %s (run the sandbox with --in-sandbox-cgroup=v2): %w", mount, err)
		}
	}
	if err := write(mount+"/cgroup.subtree_control", "+pids"); err != nil {
		return err
	}
	for _, dir := range []string{Root, initGroup} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return write(initGroup+"/pids.max", strconv.Itoa(initPids))
}

// MoveInit puts init, by its number in the agent's PID namespace, into its group.
func MoveInit(pid int) error { return write(initGroup+"/cgroup.procs", strconv.Itoa(pid)) }

// LimitPids bounds the users' processes and threads; 0 or less means no bound.
func LimitPids(n int64) error {
	limit := "max"
	if n > 0 {
		limit = strconv.FormatInt(n, 10)
	}
	return write(Root+"/pids.max", limit)
}

// Groups are the groups below Root, by name.
type Groups struct{}

// Create makes a group.
func (Groups) Create(name string) error {
	if err := os.Mkdir(Root+"/"+name, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

// Kill sends SIGKILL to every process of a group, at one instant.
func (Groups) Kill(name string) error { return write(Root+"/"+name+"/cgroup.kill", "1") }

// Remove removes a group. It reports false while processes are left.
func (Groups) Remove(name string) bool {
	err := unix.Rmdir(Root + "/" + name)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// Processes calls f for every process below Root and in Init's group, with its
// number in the agent's PID namespace, until f returns false.
func Processes(f func(group string, pid int) bool) error {
	groups, err := os.ReadDir(Root)
	if err != nil {
		return fmt.Errorf("list cgroups: %w", err)
	}
	for _, g := range groups {
		if g.IsDir() && !members(Root+"/"+g.Name(), g.Name(), f) {
			return nil
		}
	}
	members(initGroup, Init, f)
	return nil
}

func members(dir, name string, f func(group string, pid int) bool) bool {
	b, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return true // removed meanwhile
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 && !f(name, pid) {
			return false
		}
	}
	return true
}

// write uses one system call for the value: the kernel takes it as a whole.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

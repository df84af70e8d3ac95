package sentry

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// What the host allows a sandbox above its guest's memory, in bytes: the sentry
// itself, and what it needs for each process inside (its kernel structures and
// stub: 350 to 400 KiB measured), so that a fork bomb meets the guest's own limit.
const (
	sentrySlack  = 64 << 20
	processSlack = 384 << 10
)

// hostLimit is the memory limit of a life's cgroup, in bytes.
func hostLimit(l cube.Limits) int64 { return l.MemoryMiB<<20 + sentrySlack + l.Pids*processSlack }

// hierarchies says where this machine's cgroups are. On a hybrid one limits are
// in version 1, and the bare version 2 hierarchy is there for cgroup.kill and
// populated; on a pure one, version 2 does both.
type hierarchies struct {
	v2      string            // mount of version 2, "" if there is none
	limited bool              // version 2 has the controllers
	v1      map[string]string // controller → mount, when not limited
	node    string            // our node, relative to each mount
}

// controllers that are used where version 1 has them.
var controllers = []string{"memory", "cpu", "pids"}

// findHierarchies reads the mounts of this process.
func findHierarchies(mountinfo, node string) (*hierarchies, error) {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	h := &hierarchies{v1: map[string]string{}, node: node}
	sc := bufio.NewScanner(strings.NewReader(string(b)))
	for sc.Scan() {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		switch r[0] {
		case "cgroup2":
			if h.v2 == "" {
				h.v2 = l[4]
			}
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				for _, c := range controllers {
					if o == c && h.v1[c] == "" {
						h.v1[c] = l[4]
					}
				}
			}
		}
	}
	if len(h.v1) == 0 && h.v2 != "" {
		h.limited = true
		return h, h.delegate()
	}
	if h.v2 == "" && len(h.v1) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted; mount one at /sys/fs/cgroup")
	}
	if h.v1["memory"] == "" {
		return nil, errors.New("the memory controller is not mounted; sandboxes would have no limit")
	}
	return h, nil
}

// parentTries is how often what another keeper, which ends, has just removed is made
// again.
const parentTries = 20

// delegate hands the controllers of version 2 down to our node.
func (h *hierarchies) delegate() error {
	return again(h.handDown)
}

// again calls f until what it needs is not removed meanwhile.
func again(f func() error) (err error) {
	for range parentTries {
		if err = f(); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

func (h *hierarchies) handDown() error {
	dir := h.v2
	for _, part := range append([]string{""}, strings.Split(h.node, "/")...) {
		dir = filepath.Join(dir, part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, c := range controllers {
			err := write(dir, "cgroup.subtree_control", "+"+c)
			if errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("cgroup %s has processes of its own and can hand no controller down; move this machine's processes out of the cgroup root of this container into a leaf: %w", dir, err)
			}
			if err != nil {
				return fmt.Errorf("cgroup controller %s is not available at %s: %w", c, dir, err)
			}
		}
	}
	return nil
}

// group is the cgroup of one life, in every hierarchy that is used.
type group struct {
	h    *hierarchies
	life string
}

// dirs are the group's directories: that of version 2 first, if there is one.
func (g *group) dirs() []string {
	var ds []string
	if g.h.v2 != "" {
		ds = append(ds, filepath.Join(g.h.v2, g.h.node, g.life))
	}
	if !g.h.limited {
		for _, c := range controllers {
			if m := g.h.v1[c]; m != "" {
				ds = append(ds, filepath.Join(m, g.h.node, g.life))
			}
		}
	}
	return ds
}

func (g *group) v2dir() string { return filepath.Join(g.h.v2, g.h.node, g.life) }

func (g *group) v1dir(c string) string { return filepath.Join(g.h.v1[c], g.h.node, g.life) }

// create makes the group and sets its limits. After a failure nothing is left.
func (g *group) create(l cube.Limits) (err error) {
	defer func() {
		if err != nil {
			g.remove()
		}
	}()
	if err := g.mkdir(); err != nil {
		return err
	}
	// gVisor's threads and stubs count here too, and a sentry that cannot make a
	// thread crashes: this bounds a runaway sentry, not the guest.
	pids := strconv.FormatInt(10*l.Pids+4096, 10)
	quota := strconv.Itoa(l.CPUs * 100000)
	if g.h.limited {
		return errors.Join(
			g.limitMemory(hostLimit(l)),
			optional(write(g.v2dir(), "memory.swap.max", "0")),
			write(g.v2dir(), "memory.oom.group", "1"),
			write(g.v2dir(), "pids.max", pids),
			write(g.v2dir(), "cpu.max", quota+" 100000"))
	}
	err = g.limitMemory(hostLimit(l))
	if g.h.v1["pids"] != "" {
		err = errors.Join(err, write(g.v1dir("pids"), "pids.max", pids))
	}
	if g.h.v1["cpu"] != "" {
		err = errors.Join(err, write(g.v1dir("cpu"), "cpu.cfs_period_us", "100000"), write(g.v1dir("cpu"), "cpu.cfs_quota_us", quota))
	}
	return err
}

// mkdir makes the group's directories. Our node may have been removed, with those above
// it, by a keeper that ended when nothing was in it; once a group is, nobody can.
func (g *group) mkdir() error {
	for _, d := range g.dirs() {
		if err := again(func() error { return os.MkdirAll(d, 0o755) }); err != nil {
			return err
		}
	}
	if !g.h.limited {
		return nil
	}
	_, err := os.Lstat(filepath.Join(g.v2dir(), "memory.max"))
	if errors.Is(err, os.ErrNotExist) { // the node was made anew
		return g.h.delegate()
	}
	return err
}

// Shares of CPU time, as version 1 counts them, when there is not enough.
const (
	fullShares = 1024
	poolShares = 32 // what nobody has asked for yet must not slow down what runs
)

// share sets the group's part of the CPU time.
func (g *group) share(shares int) error {
	if g.h.limited {
		return write(g.v2dir(), "cpu.weight", strconv.Itoa(max(1, shares*100/fullShares)))
	}
	if g.h.v1["cpu"] == "" {
		return nil
	}
	return write(g.v1dir("cpu"), "cpu.shares", strconv.Itoa(shares))
}

// place moves a process into the hierarchies that clone could not put it into.
func (g *group) place(pid int) error {
	if g.h.limited {
		return nil
	}
	for _, d := range g.dirs() {
		if err := write(d, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// open returns the version 2 directory, for clone; nil where there is none.
func (g *group) open() (*os.File, error) {
	if g.h.v2 == "" {
		return nil, nil
	}
	return os.Open(g.v2dir())
}

// kill ends every process in the group. Where the kernel lacks cgroup.kill the
// caller's pidfd has to do: the sentry is the init of its PID namespace.
func (g *group) kill() error {
	if g.h.v2 == "" {
		for _, pid := range g.processes() {
			// Still listed after its pidfd was opened: that names no other process.
			if f, _, err := openProcess(pid, 0); err == nil {
				if slices.Contains(g.processes(), pid) {
					signalProcess(f, unix.SIGKILL)
				}
				f.Close()
			}
		}
		return nil
	}
	return optional(write(g.v2dir(), "cgroup.kill", "1"))
}

// processes are those of the group, where version 1 is all there is.
func (g *group) processes() []int {
	b, _ := os.ReadFile(filepath.Join(g.v1dir("memory"), "cgroup.procs"))
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// waitEmpty returns when no process is left in the group.
func (g *group) waitEmpty(timeout time.Duration) error {
	if g.h.v2 == "" {
		return nil // the PID namespace has ended with its init
	}
	f, err := os.Open(filepath.Join(g.v2dir(), "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	deadline := time.Now().Add(timeout)
	buf := make([]byte, 256)
	for {
		n, err := f.ReadAt(buf, 0)
		if n == 0 {
			return err
		}
		if strings.Contains(string(buf[:n]), "populated 0") {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("cgroup %s still has processes after %v", g.v2dir(), timeout)
		}
		// The kernel wakes this when the file's content changes.
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			return err
		}
	}
}

// remove deletes the group. A directory may be busy for an instant after its
// last process has been reaped.
func (g *group) remove() error {
	var errs []error
	for _, d := range g.dirs() {
		var err error
		for range 50 {
			if err = unix.Rmdir(d); err != unix.EBUSY {
				break
			}
			unix.Poll(nil, 2) // nothing announces this
		}
		if err != nil && err != unix.ENOENT {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", d, err))
		}
	}
	return errors.Join(errs...)
}

// removeNode deletes our node, and those above it, where they are empty. Another keeper
// that finds them gone makes them again.
func (h *hierarchies) removeNode() {
	for _, d := range (&group{h: h}).dirs() {
		for range strings.Split(h.node, "/") {
			unix.Rmdir(d)
			d = filepath.Dir(d)
		}
	}
}

// oomKills is how often the kernel has killed for this group's memory limit.
func (g *group) oomKills() int64 {
	if g.h.limited {
		return keyed(g.v2dir(), "memory.events", "oom_kill")
	}
	return keyed(g.v1dir("memory"), "memory.oom_control", "oom_kill")
}

// memory is what the group is charged, in bytes.
func (g *group) memory() int64 {
	if g.h.limited {
		return number(g.v2dir(), "memory.current")
	}
	return number(g.v1dir("memory"), "memory.usage_in_bytes")
}

// cpu is the CPU time of the group.
func (g *group) cpu() time.Duration {
	if g.h.v2 == "" {
		return 0
	}
	return time.Duration(keyed(g.v2dir(), "cpu.stat", "usage_usec")) * time.Microsecond
}

func write(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
}

// optional forgives what this kernel does not have.
func optional(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

func number(dir, name string) int64 {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

func keyed(dir, name, key string) int64 {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killAll ends the server, the keepers, their networks and all sentries at once, and
// returns when none of them is left.
func (s *Server) killAll() error {
	began := false
	err := killProcesses(func() ([]int, error) {
		pids, err := processesOf(s.Where.Cgroup, s.opt.RunDir, s.opt.StateDir)
		began = began || len(pids) > 0
		return pids, err
	})
	if err == nil && !began {
		err = errors.New("there was nothing to kill")
	}
	return errors.Join(err, s.reap())
}

// killProcesses kills those that find gives until it gives none.
func killProcesses(find func() ([]int, error)) error {
	return Until(answerTime, "all processes end", func() error {
		pids, err := find()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
		if len(pids) > 0 {
			return fmt.Errorf("%d of them are there", len(pids))
		}
		return nil
	})
}

// reap waits for the server itself, which was killed.
func (s *Server) reap() error {
	select {
	case <-s.ended:
		s.ended <- nil
		s.cmd = nil
		return nil
	case <-time.After(answerTime):
		return fmt.Errorf("the server does not end after %v", answerTime)
	}
}

// processesOf are those of some directories, `cube serve` first: what was told of them or
// is a program in them, what is in the cgroup, where one is named, and what these have
// started. Those that only wait to be reaped are not counted.
func processesOf(cgroup string, dirs ...string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents, ours, servers := map[int]int{}, map[int]bool{}, map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		state, parent, ok := processState(pid)
		if !ok || state == "Z" || state == "X" {
			continue
		}
		parents[pid] = parent
		ours[pid], servers[pid] = belongs(pid, cgroup, dirs)
	}
	for grown := true; grown; {
		grown = false
		for pid, parent := range parents {
			if !ours[pid] && ours[parent] {
				ours[pid], grown = true, true
			}
		}
	}
	var out []int
	for pid := range parents {
		if servers[pid] {
			out = append([]int{pid}, out...)
		} else if ours[pid] {
			out = append(out, pid)
		}
	}
	return out, nil
}

// belongs reports whether a process has to do with the directories or the cgroup, and
// whether it is the server. One that has ended has not.
func belongs(pid int, cgroup string, dirs []string) (ours, server bool) {
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(cmdline), "\x00")
	for _, dir := range dirs {
		if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg+"/", dir+"/") }) {
			return true, slices.Contains(args, "serve")
		}
	}
	cgroups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return cgroup != "" && strings.Contains(string(cgroups), "/"+cgroup), false
}

// processState is a process's state letter and its parent.
func processState(pid int) (state string, parent int, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(f[1])
	return f[0], parent, err == nil
}

// removeCgroups takes our empty cgroups away, which no boot would leave.
func (s *Server) removeCgroups() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[2], "cgroup") {
			continue
		}
		if err := removeTree(filepath.Join(f[1], s.Where.Cgroup)); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes cgroups from the leaves up. They are busy until the last process
// has gone.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return Until(5*time.Second, "remove "+dir, func() error { return syscall.Rmdir(dir) })
}

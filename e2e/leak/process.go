package leak

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// process is one line of the process table.
type process struct {
	pid, parent int
	command     string
	cgroups     string // /proc/PID/cgroup
	zombie      bool
	server      bool // it serves a socket in the run directory
}

// processes are ours: descendants of this one, those in our cgroups, those that
// serve a socket in our run directory, and all descendants of these.
type processes []process

func findProcesses(w Where) (processes, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	served, err := servedInodes(w.RunDir)
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid, served); ok {
			all[pid] = p
		}
	}
	ours := map[int]bool{os.Getpid(): true}
	for pid, p := range all {
		if p.server || w.Cgroup != "" && inCgroup(p.cgroups, w.Cgroup) {
			ours[pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, p := range all {
			if !ours[pid] && ours[p.parent] {
				ours[pid], grown = true, true
			}
		}
	}
	var out processes
	for pid := range ours {
		if p, ok := all[pid]; ok {
			p.server = p.server || slices.Contains(w.PIDs, pid)
			out = append(out, p)
		}
	}
	return out, nil
}

func inCgroup(cgroups, node string) bool {
	for line := range strings.Lines(cgroups) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 &&
			(f[2] == "/"+node || strings.Contains(f[2]+"/", "/"+node+"/")) {
			return true
		}
	}
	return false
}

// readProcess returns false for a process that has ended.
func readProcess(pid int, served map[string]bool) (process, bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return process{}, false
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 2 {
		return process{}, false
	}
	p := process{pid: pid, zombie: f[0] == "Z"}
	p.parent, _ = strconv.Atoi(f[1])
	cmdline, _ := os.ReadFile(dir + "cmdline")
	p.command = strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
	if p.command == "" {
		name, _ := os.ReadFile(dir + "comm")
		p.command = "[" + strings.TrimSpace(string(name)) + "]"
	}
	b, _ := os.ReadFile(dir + "cgroup")
	p.cgroups = string(b)
	for _, target := range descriptors(pid) {
		p.server = p.server || served[target]
	}
	return p, true
}

func (ps processes) lines() map[string]int {
	out := map[string]int{}
	for _, p := range ps {
		line := p.command
		if len(line) > 300 {
			line = line[:300] + "…"
		}
		if p.zombie {
			line += " (zombie)"
		}
		out[line]++
	}
	return out
}

// descriptors counts those of this process and of the servers, by what they are.
func (ps processes) descriptors() map[string]int {
	out := map[string]int{}
	for _, p := range ps {
		if p.pid != os.Getpid() && !p.server {
			continue
		}
		name := filepath.Base(strings.Fields(p.command)[0])
		if p.pid == os.Getpid() {
			name = "this test"
		}
		for _, target := range descriptors(p.pid) {
			out["of "+name+": "+kindOf(target)]++
		}
	}
	return out
}

// descriptors returns what each descriptor of a process is, nil when it has ended.
func descriptors(pid int) []string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || target == dir { // closed meanwhile, or that of this very look
			continue
		}
		out = append(out, target)
	}
	return out
}

var number = regexp.MustCompile(`\[\d+\]$`)

// kindOf makes lines of one kind equal: "socket:[123]" is "socket".
func kindOf(target string) string {
	if kind, _, ok := strings.Cut(target, ":["); ok && number.MatchString(target) {
		return kind
	}
	return target
}

// servedInodes returns "socket:[N]" for each socket that is bound in dir itself, or
// where a keeper of another version works: those of the sentries, further down, are
// not those of servers.
func servedInodes(dir string) (map[string]bool, error) {
	table, err := unixTable()
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, s := range table {
		if at := filepath.Dir(s.path); at == dir || filepath.Dir(at) == filepath.Join(dir, "k") {
			out["socket:["+s.inode+"]"] = true
		}
	}
	return out, nil
}

func below(path, dir string) bool {
	return dir != "" && (path == dir || strings.HasPrefix(path, dir+"/"))
}

// unixSocket is one that has a name.
type unixSocket struct{ inode, path string }

func unixTable() ([]unixSocket, error) {
	b, err := os.ReadFile("/proc/net/unix")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("/proc is not mounted: %w", err)
	}
	var out []unixSocket
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 {
			out = append(out, unixSocket{inode: f[6], path: f[7]})
		}
	}
	return out, err
}

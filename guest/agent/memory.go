package agent

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"cubesandbox/guest/cgroup"

	"golang.org/x/sys/unix"
)

// memoryWatch kills the largest of the users' processes when the sandbox has
// used nearly all of its memory: gVisor has no memory limit and no OOM killer
// inside, and the host's limit ends the sandbox as a whole.
//
// Its source is sysinfo(2): gVisor answers it with the number of blocks of the
// one file that holds all the guest's memory, process and tmpfs pages alike, which
// is also what the host charges. That is one system call of constant cost.
// /proc/meminfo, memory.current and rss have gVisor ask the host about every
// page that it does not know yet, and the former is held back for up to eight
// times as long as that takes; so they are late when it matters. A process's rss
// only decides which is the largest.
//
// It looks only while users' processes run, and the more often the less is left:
// the sooner the rest could be gone. Between two looks there is only a timer.
type memoryWatch struct {
	// active says whether any of the users' processes runs. It may take locks
	// that are never held while the watch is called.
	active func() bool
	killed func(group, detail string)

	mu    sync.Mutex  // guards all below
	limit int64       // bytes; 0 for none
	timer *time.Timer // nil while nobody looks
}

const (
	// fillRate is how fast a sandbox is thought to be able to take memory, in
	// bytes per second: twice of what was measured. Each look costs about half a
	// millisecond of CPU time, so a rate out of caution costs every idle sandbox.
	fillRate = 2 << 30
	// slack is what may be taken beyond the threshold before anybody else acts:
	// the last 5 %, and the 64 MiB that the host allows on top.
	slack = 32 << 20
	// Bounds of the time between two looks.
	minLook = 5 * time.Millisecond
	maxLook = time.Second
	// settle is the time between two kills: the memory of the first comes back.
	settle = 50 * time.Millisecond
)

func newMemoryWatch(active func() bool, killed func(group, detail string)) *memoryWatch {
	return &memoryWatch{active: active, killed: killed}
}

func (m *memoryWatch) setLimit(bytes int64) {
	m.mu.Lock()
	m.limit = bytes
	m.mu.Unlock()
	m.changed()
}

// changed must be called when active may have changed.
func (m *memoryWatch) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch on := m.limit > 0 && m.active(); {
	case on && m.timer == nil:
		m.timer = time.AfterFunc(max(pace(m.used(), m.limit), minLook), m.look)
	case !on && m.timer != nil:
		m.timer.Stop()
		m.timer = nil
	}
}

// look acts if it is time to, and says when to look again.
func (m *memoryWatch) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer == nil { // stopped while this was about to run
		return
	}
	if m.limit <= 0 || !m.active() {
		m.timer = nil
		return
	}
	wait := pace(m.used(), m.limit)
	if wait == 0 {
		m.kill(m.limit)
		wait = settle
	}
	m.timer.Reset(wait)
}

// threshold is where the watch acts: 95 % of the limit.
func threshold(limit int64) int64 { return limit - limit/20 }

// pace returns when to look again; 0 means that it is time to act.
func pace(used, limit int64) time.Duration {
	left := threshold(limit) - used
	if left <= 0 {
		return 0
	}
	if left < slack {
		return minLook
	}
	return min(max(time.Duration(float64(left)/fillRate*float64(time.Second)), minLook), maxLook)
}

// total returns the bytes of memory that the sandbox may use.
func (m *memoryWatch) total() int64 {
	m.mu.Lock()
	limit := m.limit
	m.mu.Unlock()
	var s unix.Sysinfo_t
	if limit <= 0 && unix.Sysinfo(&s) == nil {
		limit = int64(s.Totalram) * int64(s.Unit)
	}
	return limit
}

// used returns the bytes of memory that the guest has committed.
func (m *memoryWatch) used() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram-s.Freeram) * int64(s.Unit)
}

// kill kills the largest process. Init is one of them only where it holds much,
// for users' root may have taken it over: all others would die with it.
func (m *memoryWatch) kill(limit int64) {
	group, pid, rss := largest(limit / 4)
	if pid == 0 {
		return
	}
	name := command(pid)
	if unix.Kill(pid, unix.SIGKILL) == nil {
		m.killed(group, fmt.Sprintf("killed %s (%d MiB): the sandbox had used 95%% of its %d MiB of memory", name, rss>>20, limit>>20))
	}
}

// largest returns the process with the most resident memory, in bytes, the agent
// excepted, and init only from initFrom on. It looks at every process, not at
// groups: users' root may have moved some out of theirs.
func largest(initFrom int64) (group string, pid int, rss int64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return "", 0, 0
	}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil || p == os.Getpid() {
			continue
		}
		if r := resident(p); r > rss && (r >= initFrom || parent(p) != os.Getpid()) {
			pid, rss = p, r
		}
	}
	cgroup.Processes(func(g string, p int) bool {
		if p == pid {
			group = g
		}
		return p != pid
	})
	return group, pid, rss
}

// parent returns the PID of a process's parent; that of init is the agent.
func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything; the fields that follow cannot.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// command returns the name of a process, which the process chooses.
func command(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "a process"
	}
	return strconv.QuoteToASCII(strings.TrimSpace(string(b[:min(len(b), 64)])))
}

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HostMeter adds up this process, other long-lived ones, and a cgroup.
type HostMeter struct {
	// PIDs are the keeper and the network process.
	PIDs []int
	// Cgroup is a directory of the version 2 hierarchy, whose cpu.stat also counts
	// everything that has ended below it; "" for none.
	Cgroup string
}

// CPU implements Meter.
func (m HostMeter) CPU() (time.Duration, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0, err
	}
	total := time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	for _, pid := range m.PIDs {
		d, err := processCPU(pid)
		if err != nil {
			return 0, err
		}
		total += d
	}
	if m.Cgroup == "" {
		return total, nil
	}
	d, err := cgroupCPU(m.Cgroup)
	return total + d, err
}

// processCPU adds up the threads of a process: schedstat has nanoseconds, where
// the process's own figures have ticks of 10 ms.
func processCPU(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d: no schedstat: it has ended, or the kernel keeps none", pid)
	}
	var total time.Duration
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		first, _, _ := bytes.Cut(b, []byte(" "))
		ns, err := strconv.ParseInt(string(first), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		total += time.Duration(ns)
	}
	return total, nil
}

func cgroupCPU(dir string) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if errors.Is(err, os.ErrNotExist) { // nothing has run yet
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			us, err := strconv.ParseInt(v, 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", dir)
}

// CgroupV2 returns the mount of the version 2 hierarchy, "" where there is none.
func CgroupV2() string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		if f := strings.Fields(left); ok && len(f) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return f[4]
		}
	}
	return ""
}

package agent

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"cubesandbox/guest/filesystem"

	"golang.org/x/sys/unix"
)

// metrics is what GET /metrics answers, as E2B has it.
type metrics struct {
	Time        int64   `json:"ts"` // Unix time, in seconds
	CPUs        int     `json:"cpu_count"`
	CPUPercent  float64 `json:"cpu_used_pct"` // of all processors, 0 to 100
	MemTotal    int64   `json:"mem_total"`    // bytes, as all below
	MemUsed     int64   `json:"mem_used"`
	MemCache    int64   `json:"mem_cache"`
	MemTotalMiB int64   `json:"mem_total_mib"`
	MemUsedMiB  int64   `json:"mem_used_mib"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// handleMetrics measures when it is asked, and never else.
func (a *Agent) handleMetrics(w http.ResponseWriter, r *http.Request) {
	cpu, err := a.cpu.percent(r.Context())
	var disk unix.Statfs_t
	if err == nil {
		err = unix.Statfs("/", &disk) // the writable layer: its size is the sandbox's limit
	}
	if err != nil {
		filesystem.WriteError(w, http.StatusInternalServerError, fmt.Sprintf("metrics: %v", err))
		return
	}
	block := uint64(disk.Bsize)
	total, used := a.memory.total(), a.memory.used()
	reply(w, metrics{
		Time: time.Now().Unix(), CPUs: runtime.NumCPU(), CPUPercent: cpu,
		MemTotal: total, MemUsed: used, MemCache: cached(), MemTotalMiB: total >> 20, MemUsedMiB: used >> 20,
		DiskUsed: (disk.Blocks - disk.Bfree) * block, DiskTotal: disk.Blocks * block,
	})
}

// cached is what the kernel inside holds of files, in bytes, those in memory only
// included. Unlike the memory in use it costs gVisor a look at all pages.
func cached() int64 {
	b, _ := os.ReadFile("/proc/meminfo")
	var kib int64
	if _, rest, ok := bytes.Cut(b, []byte("\nCached:")); ok {
		fmt.Sscan(string(rest[:min(len(rest), 64)]), &kib)
	}
	return kib << 10
}

// sample is how long the use of processors is measured where nobody has asked
// before, or only just.
const sample = 100 * time.Millisecond

// cpuMeter measures from one asking to the next.
type cpuMeter struct {
	read func() (busy time.Duration, err error) // since the boot, of all processors

	mu   sync.Mutex // guards all below
	at   time.Time  // when it was asked last in this life; zero if it was not
	busy time.Duration
}

// restart forgets what was measured in an earlier life: the clock has jumped.
func (m *cpuMeter) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = time.Time{}
}

// percent is how much of all processors was used since it was asked last.
func (m *cpuMeter) percent(ctx context.Context) (float64, error) {
	m.mu.Lock()
	at, before := m.at, m.busy
	m.mu.Unlock()
	if at.IsZero() || time.Since(at) < sample {
		var err error
		if before, err = m.read(); err != nil {
			return 0, err
		}
		at = time.Now()
		timer := time.NewTimer(sample)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	busy, err := m.read()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	m.mu.Lock()
	m.at, m.busy = now, busy
	m.mu.Unlock()
	return share(busy-before, now.Sub(at)*time.Duration(runtime.NumCPU())), nil
}

// share is a part of a whole in percent, with two decimals, in bounds: gVisor counts
// in ticks.
func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	p := 100 * float64(part) / float64(whole)
	return math.Round(min(max(p, 0), 100)*100) / 100
}

// tick is the unit of /proc/stat.
const tick = 10 * time.Millisecond

// busyTime reads how long all processors have worked.
func busyTime() (time.Duration, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var user, nice, system int64
	if _, err := fmt.Fscanf(f, "cpu %d %d %d", &user, &nice, &system); err != nil {
		return 0, fmt.Errorf("read /proc/stat: %w", err)
	}
	return time.Duration(user+nice+system) * tick, nil
}

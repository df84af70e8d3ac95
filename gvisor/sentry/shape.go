package sentry

import (
	"gvisor.dev/gvisor/runsc/cgroup"

	cube "cubesandbox"
)

// shape tells gVisor how large the guest is. The process is placed by us, so
// this is all of its cgroup interface that is ever asked.
type shape struct {
	cgroup.Cgroup
	limits cube.Limits
}

// NumCPU is what the guest sees, whatever the host has.
func (s shape) NumCPU() (int, error) { return s.limits.CPUs, nil }

// CPUQuota says that there is none inside: the host's cgroup has it.
func (s shape) CPUQuota() (int64, error) { return -1, nil }

// CPUPeriod is the usual one.
func (s shape) CPUPeriod() (int64, error) { return 100000, nil }

// MemoryLimit is the guest's memory, in bytes.
func (s shape) MemoryLimit() (uint64, error) { return uint64(s.limits.MemoryMiB) << 20, nil }

// Uninstall has nothing to do.
func (s shape) Uninstall() error { return nil }

// MakePath has no path to give.
func (s shape) MakePath(string) string { return "" }

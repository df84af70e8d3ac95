package sentry

import (
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/specutils"

	"cubesandbox/guest/agentapi"
	"cubesandbox/gvisor/keeperapi"
)

// erofsPath is the name by which the spec calls a file system. gVisor compares
// it at restore, so it depends on the content alone; the file itself comes as a
// descriptor.
func erofsPath(digest string) string { return "/cube/" + digest + ".erofs" }

// guestSpec is the OCI spec of a life. It is a function of the two file systems
// and the limits, so that an image restores wherever those are.
func guestSpec(b keeperapi.Boot) *specs.Spec {
	caps := allCapabilities()
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: "sandbox",
		Root:     &specs.Root{Path: "/var/empty"},
		Process: &specs.Process{
			Args: []string{agentapi.MountPoint + "/cube-guest"},
			Cwd:  "/",
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			// The agent gives the users' processes fewer.
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps, Inheritable: caps},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: 65536, Hard: 1 << 20},
			},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"rw"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777", fmt.Sprintf("size=%dm", max(64, b.Limits.MemoryMiB/2))}},
			{Destination: agentapi.MountPoint, Type: "erofs", Source: erofsPath(b.Agent), Options: []string{"ro"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
			},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source":  erofsPath(b.Rootfs),
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.overlay": "memory",
		},
	}
}

// mountConfs says how the two file systems are mounted: the root with a writable
// layer in the filestore, bounded; the agent read-only.
func mountConfs(b keeperapi.Boot) specutils.GoferMountConfFlags {
	return specutils.GoferMountConfFlags{
		{Lower: specutils.Erofs, Upper: specutils.AnonOverlay, Size: fmt.Sprintf("%dm", b.Limits.DiskMiB)},
		{Lower: specutils.Erofs, Upper: specutils.NoOverlay},
	}
}

// allCapabilities is sorted: the spec must be the same every time.
func allCapabilities() []string {
	return slices.Sorted(slices.Values(specutils.AllCapabilities().Bounding))
}

package sentry

import (
	"fmt"
	"path/filepath"

	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
)

// sentryConfig is gVisor's configuration of one life. What is in here is part of
// what an image can be restored with.
func sentryConfig(root, lifeDir string) (*config.Config, error) {
	fs := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(fs)
	args := []string{
		"--root=" + root,
		"--platform=systrap",
		"--network=sandbox",
		// The keeper places the process itself; gVisor would move its caller.
		"--ignore-cgroups",
		// Without it the sentry stays the host's root.
		"--directfs=false",
		// sudo and su inside. What root can do there is bounded by its capabilities.
		"--allow-suid",
		"--host-uds=none",
		"--overlay2=none",
		"--in-sandbox-cgroup=v2",
		"--allow-live-tcp-migration=false",
		"--gvisor-gro=true",
		"--tx-checksum-offload=true",
		"--rx-checksum-offload=true",
		"--qdisc=none",
		"--log=" + filepath.Join(lifeDir, logFile),
		"--panic-log=" + filepath.Join(lifeDir, panicFile),
	}
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("sentry flags: %w", err)
	}
	return config.NewFromFlags(fs)
}

// Files in the directory of a life.
const (
	specFile   = "config.json" // what gVisor reads
	recordFile = "record.json"
	logFile    = "sentry.log"
	panicFile  = "panic.log"
)

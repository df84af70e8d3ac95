package sentry

import (
	"fmt"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// donated finds the descriptors that gVisor hands to a sentry: it numbers them
// from 3 without a gap and names each in a flag.
var donated = regexp.MustCompile(`^--[a-z-]+-fds?=([0-9]+)$`)

// closeUngiven closes what a sentry has got beyond what it was given. gVisor makes
// the control socket of a sentry without close-on-exec, so one that is started at
// the same moment inherits it: it could speak for another sandbox's kernel, and
// where the number was one of those that gVisor keeps for itself it did not boot.
//
// What this program has opened itself by now, its runtime say, is close-on-exec;
// what it inherited cannot be.
func closeUngiven(args []string) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	last := lastDonated(args)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// lastDonated is the highest number in the flags, or that of standard error.
func lastDonated(args []string) int {
	last := 2
	for _, a := range args {
		if m := donated.FindStringSubmatch(a); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				last = max(last, n)
			}
		}
	}
	return last
}

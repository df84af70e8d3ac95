package sentry

import (
	"fmt"
	"math"
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
func closeUngiven(args []string) error {
	if err := unix.CloseRange(uint(lastDonated(args)+1), math.MaxUint32, 0); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
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

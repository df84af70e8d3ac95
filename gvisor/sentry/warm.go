package sentry

import (
	"os"
	"path/filepath"
	"strings"
)

// ready makes the next move between cgroups quick. The kernel keeps the lock of
// such moves in a form that costs readers nothing and the first writer in a while
// an RCU grace period: 6 to 9 ms here, 0.3 ms for those that follow at once. A
// sentry takes about 10 ms to get to the gate; whoever boots one calls this at the
// same time. Moving this process to where it is changes nothing.
func (h *hierarchies) ready() {
	if h.limited {
		return // clone puts the sentry where it belongs
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && f[1] == "memory" {
			// A failure costs the time that it would have saved.
			write(filepath.Join(h.v1["memory"], f[2]), "cgroup.procs", "0")
			return
		}
	}
}

package sentry

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// inode is that of the program which the process executes; 0 where it cannot be told.
func (n *networkProcess) inode() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var st unix.Stat_t
	if !n.alive || unix.Stat(fmt.Sprintf("/proc/%d/exe", n.held.PID), &st) != nil {
		return 0
	}
	return st.Ino
}

// older reports whether the process executes another build than ours would. What it
// held is ours by then.
func (n *networkProcess) older() bool {
	var st unix.Stat_t
	if err := unix.Stat(n.k.conf.Network, &st); err != nil {
		return false
	}
	runs := n.inode()
	return runs != 0 && runs != st.Ino
}

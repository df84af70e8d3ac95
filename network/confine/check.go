package confine

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Check says what Drop should have taken away and did not.
func Check(uid, gid int) error {
	if r, e, s := unix.Getresuid(); r != uid || e != uid || s != uid {
		return fmt.Errorf("confined: user ids are %d, %d, %d; want %d; start this program as root", r, e, s, uid)
	}
	if r, e, s := unix.Getresgid(); r != gid || e != gid || s != gid {
		return fmt.Errorf("confined: group ids are %d, %d, %d; want %d", r, e, s, gid)
	}
	groups, err := unix.Getgroups()
	if err != nil || len(groups) != 0 {
		return fmt.Errorf("confined: groups are %v (%v); want none", groups, err)
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&h, &caps[0]); err != nil || caps != [2]unix.CapUserData{} {
		return fmt.Errorf("confined: capabilities are %v (%v); want none", caps, err)
	}
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // beyond the last
		}
		if has != 0 {
			return fmt.Errorf("confined: capability %d is in the bounding set", c)
		}
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || n != 1 {
		return fmt.Errorf("confined: new privileges are possible (%v)", err)
	}
	entries, err := os.ReadDir("/")
	if err != nil || len(entries) != 0 {
		return fmt.Errorf("confined: the root directory has %d entries (%v); want none", len(entries), err)
	}
	return nil
}

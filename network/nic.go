package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// nicBuffer is how many bytes each end of a NIC may have in flight. The kernel
// counts its own overhead too and therefore doubles the figure: about 120 frames
// of full size. A sender that finds it used up loses the frame (the guest's
// kernel) or has to wait (ours).
const nicBuffer = 4 << 20

// NewNIC makes a sandbox's only NIC: a SOCK_SEQPACKET socketpair, one packet one
// Ethernet frame. The guest's end goes to the sentry, the host's end to
// Client.Plug; whoever must be able to bring a restarted cube-network up to date
// keeps a duplicate of the host's end. Nobody may keep the guest's: its last
// close is how our side learns that the guest is gone.
//
// The caller needs CAP_NET_ADMIN, for buffers above the system's limit. Only the
// sender's buffer counts on such a socket; there is none to enlarge for receiving.
func NewNIC() (guestEnd, hostEnd *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a NIC: socketpair: %w", err)
	}
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, nicBuffer); err != nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
			return nil, nil, fmt.Errorf("make a NIC: buffer of %d bytes: %w; the caller must be root", nicBuffer, err)
		}
	}
	return os.NewFile(uintptr(fds[0]), "nic-guest"), os.NewFile(uintptr(fds[1]), "nic-host"), nil
}

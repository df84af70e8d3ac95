package layer

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// xattrPrefix is how a tar names extended attributes.
	xattrPrefix = "SCHILY.xattr."
	// overlayPrefix is that of an overlay's own notes, which it lets nobody write.
	overlayPrefix = "trusted.overlay."
	opaque        = overlayPrefix + "opaque"
	// aclPrefix is that of access control lists, which gVisor puts into base64.
	aclPrefix = "system.posix_acl_"
)

// mode is the permissions of an entry, with setuid, setgid and sticky bits.
func mode(h *tar.Header) uint32 { return uint32(h.Mode) & 0o7777 }

// xattrs sets the extended attributes of an entry. What this kernel does not take
// must not cost the file: it is counted.
func (u *unpacker) xattrs(h *tar.Header, set func(name string, value []byte) error) error {
	for key, text := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrPrefix)
		if !ok || strings.HasPrefix(name, overlayPrefix) {
			continue
		}
		value := []byte(text)
		if strings.HasPrefix(name, aclPrefix) {
			var err error
			if value, err = base64.RawStdEncoding.DecodeString(text); err != nil {
				return fmt.Errorf("access control list: %w", err)
			}
		}
		err := set(name, value)
		if err == unix.EOPNOTSUPP || err == unix.EPERM || err == unix.EINVAL {
			u.done.Skipped++
			continue
		}
		if err != nil {
			return fmt.Errorf("set attribute %s: %w", shown(name), err)
		}
	}
	return nil
}

// futimens sets the times of an open file.
func futimens(fd int, times *unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

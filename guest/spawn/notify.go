package spawn

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"cubesandbox/guest/bareinit"

	"golang.org/x/sys/unix"
)

// Notify sends a signal to any process, by its number among the users, with the
// rights of the account uid. When ctx ends first, whether it was sent is not known.
// Errors are unix.Errno (ESRCH: there is no such process; EPERM: the account may not),
// ErrInitDied or ctx's.
func (i *Init) Notify(ctx context.Context, uid uint32, pid int, sig syscall.Signal) error {
	var b []byte
	for _, w := range []uint32{uid, uint32(pid), uint32(sig)} {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	a, err := i.ask(ctx, appendFrame(nil, bareinit.KindNotify, b), nil)
	switch {
	case err != nil:
		return err
	case a.child != nil || a.step != bareinit.StepNotified:
		return errors.New("init answers what nobody asked")
	case a.errno != 0:
		return unix.Errno(a.errno)
	}
	return nil
}

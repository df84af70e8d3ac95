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
// rights of the account uid. ctx bounds the wait for its turn only. Errors are
// unix.Errno (ESRCH: there is no such process; EPERM: the account may not),
// ErrInitDied or ctx's.
func (i *Init) Notify(ctx context.Context, uid uint32, pid int, sig syscall.Signal) error {
	done, err := i.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	var b []byte
	for _, w := range []uint32{uid, uint32(pid), uint32(sig)} {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	a, err := i.ask(appendFrame(nil, bareinit.KindNotify, b), nil)
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

// turn waits until no other request to init is on its way; done ends it.
func (i *Init) turn(ctx context.Context) (done func(), err error) {
	select {
	case i.starting <- struct{}{}:
	case <-i.done:
		return nil, ErrInitDied
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-i.answers: // one that nobody asked for
	default:
	}
	return func() { <-i.starting }, nil
}

// ask sends init a request and waits for its answer. It must be the caller's turn.
func (i *Init) ask(frame, rights []byte) (answer, error) {
	defer i.hurry()()
	if err := i.write(frame, rights); err != nil {
		return answer{}, err
	}
	select {
	case a := <-i.answers:
		return a, nil
	case <-i.done:
		return answer{}, ErrInitDied
	}
}

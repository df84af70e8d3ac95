package sentry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// errNoAnswer is a sentry that does not answer, and may still do what it was asked.
var errNoAnswer = errors.New("the sentry does not answer")

// callTime bounds a request to a sentry. What lasts as long as there is data to
// write or read has no bound: it ends with the life.
func callTime(method string) time.Duration {
	switch method {
	case boot.ContMgrCheckpoint, boot.ContMgrRestore, boot.ContMgrWaitRestore, boot.FsTarRootfsUpperLayer:
		return 0
	case boot.ContMgrSetNetworkArgs:
		return 10 * time.Second
	}
	return 30 * time.Second
}

// call does one request on the sentry's control socket. When the sentry ends
// meanwhile, the error says how.
func (l *life) call(method string, arg, result any) error {
	return l.callWithin(callTime(method), method, arg, result)
}

// callWithin has another bound; 0 is none.
func (l *life) callWithin(limit time.Duration, method string, arg, result any) error {
	err := l.tryCall(limit, method, arg, result)
	if err == nil {
		return nil
	}
	// A sentry that fails badly ends right after, or instead of, its answer.
	select {
	case <-l.gone:
	case <-time.After(grace(err)):
		return err
	}
	return deadError(l.record())
}

// grace is how long to wait for the end of a sentry after an error: long when the
// connection broke, which is how its end looks from here, hardly when it answered.
func grace(err error) time.Duration {
	var remote urpc.RemoteError
	if errors.As(err, &remote) || errors.Is(err, errNoAnswer) {
		return 20 * time.Millisecond
	}
	return 5 * time.Second
}

func (l *life) tryCall(limit time.Duration, method string, arg, result any) error {
	ctx, cancel := l.ctx, context.CancelFunc(func() {})
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	conn, err := connect(ctx, l.record().Control)
	if err != nil {
		return fmt.Errorf("connect to the sentry: %w", err)
	}
	c := urpc.NewClient(conn)
	defer c.Close()
	// Close would wait for the call that it is to end.
	defer context.AfterFunc(ctx, func() { conn.Shutdown() })()
	err = c.Call(method, arg, result)
	var remote urpc.RemoteError
	if err != nil && !errors.As(err, &remote) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w within %v", errNoAnswer, limit)
	}
	return err
}

func connect(ctx context.Context, path string) (*unet.Socket, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := duplicateFD(raw)
	if err != nil {
		return nil, err
	}
	s, err := unet.NewSocket(fd)
	if err != nil {
		unix.Close(fd)
	}
	return s, err
}

// duplicateFD returns another descriptor of the same open file.
func duplicateFD(raw syscall.RawConn) (fd int, err error) {
	cerr := raw.Control(func(n uintptr) { fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(cerr, err)
}

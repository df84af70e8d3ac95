package life

import (
	"context"
	"errors"
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"cubesandbox/guest/agentapi"
	"cubesandbox/network/api"
)

// Target is a port of the guest and the way to it.
type Target struct {
	Port uint16
	Via  api.Via // empty: api.ViaAuto
	// Control: the agent's own port is meant, and only with it may be dialed.
	Control bool
}

func (t Target) check() error {
	switch {
	case t.Port == 0:
		return fmt.Errorf("%w: port 0", ErrInvalid)
	case t.Control && (t.Via != api.ViaDirect || t.Port != agentapi.ControlPort):
		return fmt.Errorf("%w: control means port %d, via direct", ErrInvalid, agentapi.ControlPort)
	case !t.Control && t.Port == agentapi.ControlPort:
		return fmt.Errorf("%w: port %d is the agent's own", ErrInvalid, t.Port)
	}
	switch t.Via {
	case "", api.ViaAuto, api.ViaDirect, api.ViaAgent:
		return nil
	}
	return fmt.Errorf("%w: via %q; want auto, direct or agent", ErrInvalid, t.Via)
}

// Dial connects to a port of the guest and returns the client's end of a stream
// socketpair that carries the connection, half-closes included. Reading from it
// gives ECONNRESET when the guest resets, the life ends or this process dies.
func (l *Life) Dial(ctx context.Context, t Target) (*os.File, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	n, err := l.admit(t.Control)
	if err != nil {
		return nil, err
	}
	defer l.wg.Done()
	client, err := l.dial(ctx, t, bufferFor(n))
	if err != nil {
		l.release()
		return nil, err
	}
	return client, nil
}

// bufferFor says how large, in bytes, each of the two buffers of the n-th
// connection to a guest is. One stream needs no more than the first figure; what
// 32 may have under way at once is little more than the NIC holds, because what
// the guest's kernel sends beyond that is lost; and 1,024 whose readers sleep
// still hold less than 150 MB each way.
func bufferFor(n int) int64 {
	switch {
	case n <= 4:
		return maxBuffer
	case n <= 32:
		return maxBuffer / 4
	}
	return defaultBuffer
}

func (l *Life) dial(ctx context.Context, t Target, buffer int64) (*os.File, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	defer stop()
	f, err := l.reach(ctx, t, buffer)
	if err != nil {
		return nil, err
	}
	c, client, err := newConn(f)
	if err != nil {
		f.ep.Abort()
		return nil, err
	}
	if err := l.add(c); err != nil {
		f.ep.Abort()
		c.local.close()
		client.Close()
		return nil, err
	}
	return client, nil
}

func (l *Life) reach(ctx context.Context, t Target, buffer int64) (*flow, error) {
	if t.Via != api.ViaAgent {
		f, err := l.connect(ctx, t.Port, buffer)
		if err == nil || t.Via == api.ViaDirect || !errors.Is(err, ErrRefused) {
			return f, err
		}
	}
	f, err := l.connect(ctx, agentapi.ControlPort, buffer)
	if err != nil {
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	if err := f.upgrade(ctx, t.Port); err != nil {
		f.ep.Abort()
		return nil, err
	}
	return f, nil
}

// flow is an established TCP connection of our stack.
type flow struct {
	ep tcpip.Endpoint
	wq *waiter.Queue
}

func (l *Life) connect(ctx context.Context, port uint16, buffer int64) (*flow, error) {
	f := &flow{wq: new(waiter.Queue)}
	ep, terr := l.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, f.wq)
	if terr != nil {
		return nil, dialError(terr)
	}
	f.ep = ep
	o := ep.SocketOptions()
	o.SetDelayOption(false)
	o.SetReceiveBufferSize(buffer, true)
	o.SetSendBufferSize(buffer, true)
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	f.wq.EventRegister(&entry)
	defer f.wq.EventUnregister(&entry)
	terr = ep.Connect(tcpip.FullAddress{NIC: nicID, Addr: guest, Port: port})
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ready:
			terr = ep.LastError()
		case <-ctx.Done():
			ep.Abort()
			return nil, cause(ctx)
		}
	}
	if terr != nil {
		ep.Abort()
		return nil, dialError(terr)
	}
	return f, nil
}

// cause is why a dial was given up.
func cause(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrTimeout
	}
	return err
}

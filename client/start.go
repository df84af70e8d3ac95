package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

// Start starts a program and returns its number, and where its output begins. It goes on by
// itself, until its Command.Timeout is over; its output is kept for Follow, for which it
// waits, a minute at most, when it has written 1 MiB. Its standard input is open if
// Command.Stdin is not nil; that, Stdout, Stderr and Resize are not used otherwise.
//
// The end of ctx ends the call, not the program. Where that or a broken connection comes
// before the number of the program, the error is ErrMaybeStarted too: then it may run, and
// only its Timeout ends it.
func (g *Guest) Start(ctx context.Context, c Command) (pid uint32, at Position, err error) {
	if len(c.Argv) == 0 {
		return 0, at, fmt.Errorf("start: no program: %w", cube.ErrInvalid)
	}
	at.Reader = rand.Text()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else {
		pid, at.Lives, err = g.start(ctx, c, at)
	}
	if err != nil {
		return 0, Position{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	return pid, at, nil
}

// ErrMaybeStarted says that a call of Start has failed when the program may have begun.
var ErrMaybeStarted = errors.New("whether the program was started is not known")

// notBegun says why no number of a program has come.
func notBegun(ctx context.Context, err error) error {
	why := meaning(cause(ctx, err))
	if stopped(err) && ctx.Err() == nil {
		why = ErrStopped
	}
	if neverBegan(err) {
		return why
	}
	return fmt.Errorf("%w; %w", why, ErrMaybeStarted)
}

// neverBegan reports whether an error is of before a program could begin: nobody could be
// asked, or the answer was no. What is said in the agent's place comes too late for that.
func neverBegan(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	var said *Error
	if errors.As(err, &said) {
		return said.Status < 500 || errors.Is(said, cube.ErrNotFound) || errors.Is(said, cube.ErrRefused)
	}
	return connect.IsWireError(err) && !stopped(err)
}

// start returns the number of the program, and the lives in which it has begun.
func (g *Guest) start(ctx context.Context, c Command, at Position) (pid uint32, lives string, err error) {
	// The end of a context is told to the agent as that of the program.
	alone, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if c.Timeout > 0 {
		alone, cancel = context.WithTimeout(alone, c.Timeout)
		defer cancel()
	}
	req := connect.NewRequest(c.message())
	asUser(req.Header(), c.User)
	readFrom(req.Header(), at, 0)
	stream, err := g.process.Start(alone, req)
	if err != nil {
		return 0, "", notBegun(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		if e := stream.Msg().GetEvent().GetStart(); e != nil {
			return e.GetPid(), stream.ResponseHeader().Get(agentapi.OutputLives), nil
		}
	}
	if err := stream.Err(); err != nil {
		return 0, "", notBegun(ctx, err)
	}
	return 0, "", fmt.Errorf("%w: the stream ended without the number of the program; %w", cube.ErrAgent, ErrMaybeStarted)
}

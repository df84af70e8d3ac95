package client

import (
	"context"
	"crypto/rand"
	"fmt"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

// Start starts a program and returns its number, and where its output begins. It goes on by
// itself, until its Command.Timeout is over; its output is kept for Follow, for which it
// waits, a minute at most, when it has written 1 MiB. Its standard input is open if
// Command.Stdin is not nil; that, Stdout, Stderr and Resize are not used otherwise.
func (g *Guest) Start(ctx context.Context, c Command) (pid uint32, at Position, err error) {
	if len(c.Argv) == 0 {
		return 0, at, fmt.Errorf("start: no program: %w", cube.ErrInvalid)
	}
	at.Reader = rand.Text()
	if pid, at.Lives, err = g.start(ctx, c, at); err != nil {
		return 0, Position{}, fmt.Errorf("start %s: %w", c.Argv[0], meaning(err))
	}
	return pid, at, nil
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
		return 0, "", cause(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		if e := stream.Msg().GetEvent().GetStart(); e != nil {
			return e.GetPid(), stream.ResponseHeader().Get(agentapi.OutputLives), nil
		}
	}
	if err := stream.Err(); err != nil {
		return 0, "", cause(ctx, err)
	}
	return 0, "", fmt.Errorf("%w: the stream ended before the program had begun", cube.ErrAgent)
}

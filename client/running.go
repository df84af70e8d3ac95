package client

import (
	"context"
	"fmt"
	"sync/atomic"

	"connectrpc.com/connect"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
)

// running is a program at work.
type running struct {
	g   *Guest
	c   Command
	pid uint32
	at  Position    // of what comes next
	fed atomic.Bool // the standard input has been passed on to its end
}

// take handles one event. done says that it was the last.
func (r *running) take(ctx context.Context, e *process.ProcessEvent) (exit Exit, done bool, err error) {
	if start := e.GetStart(); start != nil {
		r.pid = start.GetPid()
		if r.c.Stdin != nil {
			go r.feed(ctx) // ends with ctx, which ends with the program
		}
		if r.c.Resize != nil {
			go r.follow(ctx)
		}
	}
	p, ok := r.at.pass(e)
	if r.at = p.Next; !ok {
		return exit, false, nil
	}
	return r.put(p)
}

// put writes a piece of the output where it belongs.
func (r *running) put(p Piece) (exit Exit, done bool, err error) {
	switch {
	case p.Exit != nil:
		return *p.Exit, true, nil
	case p.Dropped > 0 && r.c.Dropped != nil:
		r.c.Dropped(p.Dropped)
	case p.Dropped > 0:
	case p.Stream == Stderr && r.c.Stderr != nil:
		if _, err := r.c.Stderr.Write(p.Data); err != nil {
			return exit, false, fmt.Errorf("standard error: %w", err)
		}
	case p.Stream != Stderr && r.c.Stdout != nil:
		if _, err := r.c.Stdout.Write(p.Data); err != nil {
			return exit, false, fmt.Errorf("standard output: %w", err)
		}
	}
	return exit, false, nil
}

func (r *running) selector() *process.ProcessSelector { return selector(r.pid) }

// feed carries standard input, and closes it after its end. Each piece is answered
// before the next is read: a program that does not read holds its writer back. One
// that has ended, or reads no more, ends it.
func (r *running) feed(ctx context.Context) {
	b := make([]byte, 64<<10)
	for ctx.Err() == nil {
		n, err := r.c.Stdin.Read(b)
		if n > 0 && r.send(ctx, b[:n]) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	if r.c.Terminal == nil {
		_, err := r.g.process.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: r.selector()}))
		r.fed.Store(err == nil)
	}
}

func (r *running) send(ctx context.Context, b []byte) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: b}}
	if r.c.Terminal != nil {
		in.Input = &process.ProcessInput_Pty{Pty: b}
	}
	_, err := r.g.process.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: r.selector(), Input: in}))
	return err
}

// follow tells the program of new sizes of its terminal.
func (r *running) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-r.c.Resize:
			if !ok {
				return
			}
			size := &process.PTY{Size: &process.PTY_Size{Rows: s.Rows, Cols: s.Cols}}
			// A size that does not arrive is worth no more than a line that is wrapped wrong.
			r.g.process.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: r.selector(), Pty: size}))
		}
	}
}

// leftAlone says what becomes of the program when the server is stopped.
func (r *running) leftAlone() error {
	if r.pid == 0 {
		return fmt.Errorf("%w; whether the program was started is not known", ErrStopped)
	}
	return fmt.Errorf("%w; the program goes on as process %d", ErrStopped, r.pid)
}

// kill ends the program of a caller that has given up. It may have ended already, and its
// sandbox too; after a rollback its number may be another's, whose lives are others.
func (r *running) kill(ctx context.Context) {
	if r.pid == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	req := connect.NewRequest(&process.SendSignalRequest{Process: r.selector(), Signal: process.Signal_SIGNAL_SIGKILL})
	if r.at.Lives != "" {
		req.Header().Set(agentapi.OutputLives, r.at.Lives)
	}
	r.g.process.SendSignal(ctx, req)
}

package client

import (
	"context"
	"fmt"
	"io"

	"connectrpc.com/connect"

	"cubesandbox/guest/envdpb/process"
)

// running is a program at work.
type running struct {
	g   *Guest
	c   Command
	pid uint32
}

// take handles one event. done says that it was the last.
func (r *running) take(ctx context.Context, e *process.ProcessEvent) (exit Exit, done bool, err error) {
	switch e := e.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		r.pid = e.Start.GetPid()
		if r.c.Stdin != nil {
			go r.feed(ctx) // ends with ctx, which ends with the program
		}
		if r.c.Resize != nil {
			go r.follow(ctx)
		}
	case *process.ProcessEvent_Data:
		if err := put(r.c.Stdout, e.Data.GetStdout(), e.Data.GetPty()); err != nil {
			return exit, false, fmt.Errorf("standard output: %w", err)
		}
		if err := put(r.c.Stderr, e.Data.GetStderr()); err != nil {
			return exit, false, fmt.Errorf("standard error: %w", err)
		}
	case *process.ProcessEvent_End:
		return Exit{Code: int(e.End.GetExitCode()), Status: e.End.GetStatus(), Reason: e.End.GetError()}, true, nil
	}
	return exit, false, nil
}

func put(w io.Writer, parts ...[]byte) error {
	if w == nil {
		return nil
	}
	for _, b := range parts {
		if len(b) == 0 {
			continue
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
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
		r.g.process.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: r.selector()}))
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

// kill ends the program of a caller that has given up. It may have ended already,
// and its sandbox too.
func (r *running) kill(ctx context.Context) {
	if r.pid == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	r.g.process.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{
		Process: r.selector(), Signal: process.Signal_SIGNAL_SIGKILL,
	}))
}

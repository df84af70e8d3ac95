package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
)

// Command says what to run in a sandbox, and how.
type Command struct {
	// Argv is the program and its arguments; no shell looks at them.
	Argv []string
	// User and Cwd are the template's where they are empty.
	User, Cwd string
	// Env is set above what the sandbox has.
	Env map[string]string
	// Timeout ends the program after a while; 0: nothing does.
	Timeout time.Duration
	// Stdin is what the program reads; nil: nothing. A Read that hangs when the
	// program has ended is left behind.
	Stdin io.Reader
	// Stdout and Stderr get what it writes; nil drops it. With a terminal all of it
	// goes to Stdout.
	Stdout, Stderr io.Writer
	// Terminal gives the program one of this size; nil: pipes.
	Terminal *Size
	// Resize tells of new sizes of the terminal.
	Resize <-chan Size
	// GoOn goes on reading over broken connections, restarts of the server, pauses and
	// resumes, as Follow does; but not while there is standard input, of which nobody
	// knows then how much has arrived. When nobody has answered for 15 s it fails, and the
	// program may go on.
	GoOn bool
	// Dropped, if not nil, is told how many bytes of the output are missing at a place: a
	// reader that takes nothing for a minute loses the oldest.
	Dropped func(bytes int64)
}

// Size of a terminal, in characters.
type Size struct{ Rows, Cols uint32 }

// Exit is how a program ended.
type Exit struct {
	// Code is its exit status; -1 when a signal ended it.
	Code int
	// Status is such as "exit status 7" or "signal: killed".
	Status string
	// Reason is empty after success; "oom" when the sandbox's memory was used up.
	Reason string
}

// ErrTimeout says that a program was ended since its Command.Timeout was over.
var ErrTimeout = errors.New("the program's time was over")

// ErrStopped says that the server was stopped while a program ran, which goes on.
var ErrStopped = errors.New("the server was stopped")

// killTime bounds ending a program whose caller has given up.
const killTime = 5 * time.Second

// Run runs a program to its end. A program that fails is no error. The end of ctx
// kills it.
func (g *Guest) Run(ctx context.Context, c Command) (Exit, error) {
	if len(c.Argv) == 0 {
		return Exit{}, fmt.Errorf("run: no program: %w", cube.ErrInvalid)
	}
	exit, err := g.run(ctx, c)
	if err != nil {
		err = fmt.Errorf("run %s: %w", c.Argv[0], meaning(err))
	}
	return exit, err
}

func (g *Guest) run(ctx context.Context, c Command) (Exit, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	timed := ctx
	if c.Timeout > 0 {
		// The agent is told of the deadline and kills the program; so it also does
		// when we are no longer there.
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeoutCause(ctx, c.Timeout, ErrTimeout)
		defer cancel()
	}
	req := connect.NewRequest(c.message())
	asUser(req.Header(), c.User)
	req.Header().Set(keepaliveHeader, keepalive)
	r := &running{g: g, c: c}
	if c.GoOn {
		r.at.Reader = rand.Text()
		readFrom(req.Header(), r.at, 0)
	}
	stream, err := g.process.Start(timed, req)
	if err != nil {
		return Exit{}, cause(timed, err)
	}
	defer stream.Close()
	for stream.Receive() {
		r.at.Lives = stream.ResponseHeader().Get(agentapi.OutputLives)
		exit, done, err := r.take(ctx, stream.Msg().GetEvent())
		if err != nil {
			r.kill(ctx)
			return Exit{}, err
		}
		if done {
			return exit, nil
		}
	}
	if r.mayGoOn(stream.Err()) && timed.Err() == nil {
		exit, err := r.goOn(timed, stream.Err())
		if err != nil {
			err = cause(timed, err)
		}
		return exit, err
	}
	if stopped(stream.Err()) && ctx.Err() == nil {
		return Exit{}, r.leftAlone()
	}
	r.kill(ctx)
	if err := cause(timed, stream.Err()); err != nil {
		if r.pid != 0 {
			err = g.lost(ctx, err)
		}
		return Exit{}, err
	}
	return Exit{}, fmt.Errorf("%w: the stream ended before the program", cube.ErrAgent)
}

// stopped reports whether a stream was ended because its server stops, which the data
// plane says in the agent's place.
func stopped(err error) bool {
	return connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeUnavailable
}

// lost says why a stream broke, where its connection was cut.
func (g *Guest) lost(ctx context.Context, err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeCanceled: // the last is a reset
	default:
		return err
	}
	if ctx.Err() != nil || errors.Is(err, ErrTimeout) {
		return err
	}
	herr := g.Health(ctx)
	switch {
	case errors.Is(herr, cube.ErrNotFound):
		return fmt.Errorf("the sandbox was killed or paused meanwhile: %w", cube.ErrDead)
	case herr == nil:
		return fmt.Errorf("the connection was cut, and the sandbox runs: it was rolled back meanwhile, or the server was stopped: %w", cube.ErrConflict)
	}
	return herr
}

func (c Command) message() *process.StartRequest {
	stdin := c.Stdin != nil
	m := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: c.Argv[0], Args: c.Argv[1:], Envs: c.Env},
		Stdin:   &stdin,
	}
	if c.Cwd != "" {
		m.Process.Cwd = &c.Cwd
	}
	if c.Terminal != nil {
		m.Pty = &process.PTY{Size: &process.PTY_Size{Rows: c.Terminal.Rows, Cols: c.Terminal.Cols}}
	}
	return m
}

// cause is why a call ended: the end of its time or of its caller, else err.
func cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return ErrTimeout // the agent was faster
	}
	return err
}

// meaning gives an error of the agent one of the root package's, and takes the name
// of its code away.
func meaning(err error) error {
	var said *Error
	if errors.As(err, &said) {
		return said
	}
	var e *connect.Error
	if !errors.As(err, &e) || errors.Is(err, ErrUnreachable) {
		return err
	}
	kind := map[connect.Code]error{
		connect.CodeInvalidArgument: cube.ErrInvalid, connect.CodeNotFound: cube.ErrNotFound,
		connect.CodeUnauthenticated:   cube.ErrInvalid, // an unknown user; a wrong token is no RPC's answer
		connect.CodeResourceExhausted: cube.ErrNoCapacity,
	}[e.Code()]
	if kind == nil {
		kind = cube.ErrAgent
	}
	return fmt.Errorf("%s (%w)", harmless(e.Message()), kind)
}

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// Process is a started program.
type Process struct {
	Tag *string
	// PID is its number as users see it.
	PID int

	config  atomic.Pointer[process.ProcessConfig] // nil when it has ended
	begun   time.Time                             // when it was asked for
	number  uint64                                // order of starting
	group   string                                // its control group, below cgroup.Root
	starter Starter
	groups  Groups
	child   *spawn.Child
	out     *output

	input    chan struct{} // holds one token: one writer at a time
	stdin    *os.File      // nil when it has none
	terminal *os.File      // nil when it has none

	deadline  deadline
	forgotten deadline    // when it has ended: until when it is remembered
	oom       atomic.Bool // killed for want of memory, it or a descendant
	expired   atomic.Bool // killed at its deadline

	done chan struct{} // closed when end is set
	end  *process.ProcessEvent_EndEvent
}

// maxTag bounds the tag of a process, in bytes: it is kept when the process has ended.
const maxTag = 4 << 10

// Start starts a process as the named user and returns it with a reader of its
// output, who reads as how says. At the deadline, if not zero, it is killed with all its descendants.
// Errors are Connect errors.
func (t *Table) Start(ctx context.Context, user string, req *process.StartRequest, deadline time.Time, how reading) (*Process, *reader, error) {
	config := req.GetProcess()
	if config == nil {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the request names no process"))
	}
	if n := len(req.GetTag()); n > maxTag {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the tag has %d bytes: want at most %d", n, maxTag))
	}
	starter, err := t.starter(ctx)
	if err != nil {
		return nil, nil, startError(err)
	}
	p := &Process{
		Tag: req.Tag, starter: starter, groups: t.groups, input: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	p.config.Store(config)
	t.expect(p, deadline)
	defer t.unexpect(p)
	r, beyond := p.out.subscribe(how)
	if beyond != nil {
		return nil, nil, invalid(outputFrom, "the output of a new process begins at 0")
	}
	ends, err := t.open(ctx, p, user, req)
	if err != nil {
		return nil, nil, startError(err)
	}
	defer ends.closeTheirs()
	if p.group, p.number, err = t.newGroup(); err != nil {
		ends.closeOurs()
		return nil, nil, startError(err)
	}
	p.child, err = starter.Spawn(ctx, t.request(user, req, p.group), ends.theirs)
	if err != nil {
		ends.closeOurs()
		t.discard(p.group)
		return nil, nil, startError(err)
	}
	p.PID = p.child.PID
	t.add(p)
	go t.follow(p, ends.outputs)
	return p, r, nil
}

// sandboxEnv tells a program that it runs in a sandbox, below all else that it is told.
const sandboxEnv = "E2B_SANDBOX=true"

func (t *Table) request(user string, req *process.StartRequest, group string) spawn.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := spawn.Request{
		User: user, Cmd: req.Process.Cmd, Args: req.Process.Args, Cwd: req.Process.GetCwd(),
		Cgroup: group, Terminal: req.Pty != nil,
	}
	if req.Process.Cwd == nil {
		q.Cwd = t.cwd
	}
	q.Env = append(make([]string, 0, 1+len(t.env)+len(req.Process.Envs)), sandboxEnv)
	for k, v := range t.env {
		q.Env = append(q.Env, k+"="+v)
	}
	for k, v := range req.Process.Envs {
		q.Env = append(q.Env, k+"="+v)
	}
	return q
}

// startError gives an error of starting its Connect code.
func startError(err error) error {
	code := connect.CodeInternal
	var failed *spawn.Error
	switch {
	case errors.As(err, &failed):
		code = map[spawn.Failure]connect.Code{
			spawn.FailureUser:    connect.CodeUnauthenticated,
			spawn.FailureCwd:     connect.CodeInvalidArgument,
			spawn.FailureCommand: connect.CodeInvalidArgument,
			spawn.FailureLimit:   connect.CodeResourceExhausted,
		}[failed.Failure]
		if code == 0 {
			code = connect.CodeInternal
		}
	case errors.Is(err, users.ErrUnknown): // as whose terminal it was to be
		code = connect.CodeUnauthenticated
	case errors.Is(err, spawn.ErrInitDied):
		code = connect.CodeAborted
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	}
	return connect.NewError(code, err)
}

// Config is what it was started with; nil when it has ended, for it may be much.
func (p *Process) Config() *process.ProcessConfig { return p.config.Load() }

// follow owns a process from start to end.
func (t *Table) follow(p *Process, outputs []source) {
	defer p.deadline.stop()
	drained := make(chan struct{}, len(outputs))
	for _, s := range outputs {
		go s.pump(p.out.write, drained)
	}
	<-p.child.Done()
	for _, s := range outputs {
		s.file.SetReadDeadline(time.Now().Add(linger))
	}
	for range outputs {
		<-drained
	}
	p.end = endEvent(p.child.Status(), p.oom.Load())
	p.config.Store(nil)
	close(p.done)
	p.out.close()
	p.closeInput()
	t.leave(p.group)
	t.finished(p)
}

// shellKilled is the status of a shell whose command was ended by SIGKILL.
const shellKilled = 128 + int32(unix.SIGKILL)

// endEvent describes an end as Go's os.ProcessState does, which is what E2B sends.
func endEvent(status unix.WaitStatus, oom bool) *process.ProcessEvent_EndEvent {
	e := &process.ProcessEvent_EndEvent{ExitCode: -1, Exited: status.Exited()}
	switch {
	case status.Exited():
		e.ExitCode = int32(status.ExitStatus())
		e.Status = fmt.Sprintf("exit status %d", e.ExitCode)
	default:
		e.Status = "signal: " + status.Signal().String()
		if status.CoreDump() {
			e.Status += " (core dumped)"
		}
	}
	if e.ExitCode != 0 {
		text := e.Status
		if oom && (status.Signaled() || e.ExitCode == shellKilled) {
			text = "oom"
		}
		e.Error = &text
	}
	return e
}

func (p *Process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// expire is for its deadline.
func (p *Process) expire() {
	p.expired.Store(true)
	p.kill()
}

// kill ends the process and all its descendants.
func (p *Process) kill() error {
	if p.over() { // the group may hold what it left behind: that stays
		return nil
	}
	if p.groups.Kill(p.group) == nil {
		return nil
	}
	return p.starter.Signal(p.PID, syscall.SIGKILL)
}

// Signal sends a signal: SIGKILL to the process and all its descendants, others
// to the process.
func (p *Process) Signal(sig syscall.Signal) error {
	if sig == syscall.SIGKILL {
		return p.kill()
	}
	return p.starter.Signal(p.PID, sig)
}

// Resize sets the size of the terminal.
func (p *Process) Resize(size *process.PTY_Size) error {
	if p.terminal == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
	}
	raw, err := p.terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = resize(int(fd), size) })
	return errors.Join(err, failed)
}

func resize(fd int, size *process.PTY_Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{
		Col: uint16(min(size.GetCols(), 1<<16-1)), Row: uint16(min(size.GetRows(), 1<<16-1)),
	})
}

// Input writes to the process's standard input or terminal, and waits for as
// long as it takes nothing, until ctx ends.
func (p *Process) Input(ctx context.Context, in *process.ProcessInput) error {
	var to *os.File
	var data []byte
	switch in := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		to, data = p.stdin, in.Stdin
	case *process.ProcessInput_Pty:
		to, data = p.terminal, in.Pty
	}
	if to == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no such input"))
	}
	select {
	case p.input <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.input }()
	to.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { to.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := to.Write(data)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, io.ErrClosedPipe):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has closed its input"))
	}
	return connect.NewError(connect.CodeInternal, err)
}

// CloseStdin ends the standard input.
func (p *Process) CloseStdin() error {
	if p.terminal != nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal has no standard input to close: send 0x04 instead"))
	}
	if p.stdin != nil {
		p.stdin.Close() // twice is harmless
	}
	return nil
}

func (p *Process) closeInput() {
	if p.stdin != nil {
		p.stdin.Close()
	}
}

package process

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"cubesandbox/guest/envdpb/process"

	"connectrpc.com/connect"
)

// Service is envd's process.Process over a Table.
type Service struct{ Table *Table }

// defaultKeepalive is how often a silent stream says that it is alive when the
// client asks for no other time.
const defaultKeepalive = 90 * time.Second

// RequestUser returns the user that a request names by Basic authentication, or
// else the default.
func RequestUser(h http.Header, def string) string {
	r := http.Request{Header: h}
	if name, _, ok := r.BasicAuth(); ok && name != "" {
		return name
	}
	return def
}

// List lists the running processes.
func (s *Service) List(context.Context, *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	res := &process.ListResponse{}
	for _, p := range s.Table.List() {
		if config := p.Config(); config != nil { // else it has ended meanwhile
			res.Processes = append(res.Processes, &process.ProcessInfo{Config: config, Pid: uint32(p.PID), Tag: p.Tag})
		}
	}
	return connect.NewResponse(res), nil
}

// Start starts a process and streams its events. Connect-Timeout-Ms is the
// process's deadline.
func (s *Service) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	how, err := readingOf(req.Header())
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	user := RequestUser(req.Header(), s.Table.User())
	p, r, err := s.Table.Start(ctx, user, req.Msg, deadline, how)
	if err != nil {
		return err
	}
	p.out.tellLives(stream.ResponseHeader())
	return p.events(ctx, r, keepalive(req.Header()), func(e *process.ProcessEvent) error {
		if e.GetEnd() != nil && p.expired.Load() {
			return errDeadline
		}
		return stream.Send(&process.StartResponse{Event: e})
	})
}

var errDeadline = connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process was killed at its deadline"))

// Connect streams the events of a process that was started before. One that names an
// offset of its output gets all from there on, as far as it is kept.
func (s *Service) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	p, err := s.Table.Find(req.Msg.Process)
	if err != nil {
		return err
	}
	how, err := readingOf(req.Header())
	if err != nil {
		return err
	}
	r, beyond := p.out.subscribe(how)
	if beyond != nil {
		return beyond.connectError()
	}
	p.out.tellLives(stream.ResponseHeader())
	return p.events(ctx, r, keepalive(req.Header()), func(e *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: e})
	})
}

// events sends a process's events until its end, until r has read all that it wanted, or
// until ctx ends.
func (p *Process) events(ctx context.Context, r *reader, every time.Duration, send func(*process.ProcessEvent) error) error {
	whole := false
	defer func() { p.out.unsubscribe(r, whole) }()
	start := &process.ProcessEvent_StartEvent{Pid: uint32(p.PID)}
	if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: start}}); err != nil {
		return err
	}
	idle := time.NewTimer(every)
	defer idle.Stop()
	for {
		next, err := p.out.take(ctx, r, idle.C)
		switch {
		case errors.Is(err, io.EOF):
			<-p.done
			holdFlush(ctx)
			err = send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: p.end}})
			whole = err == nil
			return err
		case errors.Is(err, errWindow):
			holdFlush(ctx)
			return nil
		case errors.Is(err, errReplaced):
			return connect.NewError(connect.CodeAborted, err)
		case errors.Is(err, context.DeadlineExceeded):
			return errDeadline
		case err != nil:
			return connect.NewError(connect.CodeCanceled, err)
		}
		if err := send(next.event()); err != nil {
			return err
		}
		idle.Reset(every)
	}
}

// event is what a client is sent.
func (p *piece) event() *process.ProcessEvent {
	if p.dropped > 0 {
		e := &process.ProcessEvent_DroppedEvent{Bytes: uint64(p.dropped)}
		return &process.ProcessEvent{Event: &process.ProcessEvent_Dropped{Dropped: e}}
	}
	if p.data == nil {
		return &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
	}
	offset := uint64(p.offset)
	e := &process.ProcessEvent_DataEvent{Offset: &offset}
	switch p.stream {
	case stdout:
		e.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: p.data}
	case stderr:
		e.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: p.data}
	case terminal:
		e.Output = &process.ProcessEvent_DataEvent_Pty{Pty: p.data}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: e}}
}

func keepalive(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval")); err == nil && n > 0 && n <= 3600 {
		return time.Duration(n) * time.Second
	}
	return defaultKeepalive
}

// Update sets the size of a terminal.
func (s *Service) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	p, err := s.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		if err := p.Resize(size); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// StreamInput writes inputs in their order.
func (s *Service) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var p *Process
	for stream.Receive() {
		var err error
		switch e := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			p, err = s.running(e.Start.GetProcess())
		case *process.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the stream names no process before its data"))
			}
			err = p.Input(ctx, e.Data.GetInput())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// SendInput writes one input.
func (s *Service) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	p, err := s.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if err := p.Input(ctx, req.Msg.Input); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// SendSignal sends SIGTERM, or kills. A request with lives means a process that has lived
// them, and no other of the same number.
func (s *Service) SendSignal(_ context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	p, err := s.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if meant, err := p.out.meant(req.Header()); err != nil {
		return nil, err
	} else if !meant {
		return nil, notFound(req.Msg.Process)
	}
	var sig syscall.Signal
	switch req.Msg.Signal {
	case process.Signal_SIGNAL_SIGTERM:
		sig = syscall.SIGTERM
	case process.Signal_SIGNAL_SIGKILL:
		sig = syscall.SIGKILL
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("only SIGTERM and SIGKILL can be sent"))
	}
	if err := p.Signal(sig); err != nil {
		return nil, startError(err)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// CloseStdin ends a process's standard input.
func (s *Service) CloseStdin(_ context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	p, err := s.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if err := p.CloseStdin(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

// running finds a process that has not ended.
func (s *Service) running(sel *process.ProcessSelector) (*Process, error) {
	p, err := s.Table.Find(sel)
	if err != nil {
		return nil, err
	}
	if p.over() {
		return nil, notFound(sel)
	}
	return p, nil
}

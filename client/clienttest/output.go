package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
)

// OutputPID is the number of a process that has ended, with the output that SetOutput gives
// it. That of the program "break" is the same: it writes "abc", and its stream breaks.
const OutputPID = 1000

// Output is that of a process, and how it is read.
type Output struct {
	Text string
	// Lives are told to its readers; empty: the agent is older and knows no offsets.
	Lives string
	// Start is the offset of the oldest byte that is kept.
	Start int
	// Break cuts each stream after so many bytes; 0: none.
	Break int
	// Hold keeps a stream that breaks open for a while before it does.
	Hold time.Duration
	// Other: the process is another than the one that was read.
	Other bool
	// Fail, if not nil, is answered to each who reads.
	Fail error
}

// SetOutput sets the output of the process OutputPID, and returns how often it was read
// before.
func (s *Server) SetOutput(o Output) (reads int) {
	s.programs.mu.Lock()
	defer s.programs.mu.Unlock()
	s.programs.output = o
	reads, s.programs.reads = s.programs.reads, 0
	return reads
}

// Signals returns the signals that were sent, also to programs that are not there, each with
// the lives that its sender named.
func (s *Server) Signals() []string {
	s.programs.mu.Lock()
	defer s.programs.mu.Unlock()
	return slices.Clone(s.programs.signals)
}

// breaks starts the program "break".
func breaks(stream *connect.ServerStream[process.StartResponse]) {
	stream.ResponseHeader().Set(agentapi.OutputLives, "1:0")
	offset := uint64(0)
	for _, e := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: OutputPID}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{
			Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("abc")}, Offset: &offset,
		}}},
	} {
		stream.Send(&process.StartResponse{Event: e})
	}
	panic(http.ErrAbortHandler)
}

// Connect implements process.Process.
func (p *programs) Connect(ctx context.Context, r *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	p.mu.Lock()
	o := p.output
	p.reads++
	p.mu.Unlock()
	if pid := r.Msg.GetProcess().GetPid(); pid != OutputPID {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", pid))
	}
	if o.Fail != nil {
		return o.Fail
	}
	send := func(e *process.ProcessEvent) { stream.Send(&process.ConnectResponse{Event: e}) }
	at, err := strconv.Atoi(r.Header().Get(agentapi.OutputFrom))
	if err != nil {
		at = o.Start
	}
	if at > len(o.Text) || o.Other {
		err := connect.NewError(connect.CodeOutOfRange, errors.New("beyond the end"))
		err.Meta().Set(agentapi.OutputEnd, strconv.Itoa(len(o.Text)))
		err.Meta().Set(agentapi.OutputLives, o.Lives)
		if o.Other {
			err.Meta().Set(agentapi.OutputEnd, agentapi.OtherProcess)
		}
		return err
	}
	if o.Lives != "" {
		stream.ResponseHeader().Set(agentapi.OutputLives, o.Lives)
	}
	send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: OutputPID}}})
	if at < o.Start {
		send(&process.ProcessEvent{Event: &process.ProcessEvent_Dropped{Dropped: &process.ProcessEvent_DroppedEvent{Bytes: uint64(o.Start - at)}}})
		at = o.Start
	}
	window, _ := strconv.Atoi(r.Header().Get(agentapi.OutputWindow))
	for sent := 0; at < len(o.Text); sent++ {
		if o.Break > 0 && sent == o.Break {
			select {
			case <-time.After(o.Hold):
			case <-ctx.Done():
			}
			panic(http.ErrAbortHandler)
		}
		if window > 0 && sent == window {
			return nil
		}
		offset := uint64(at)
		send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{
			Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(o.Text[at : at+1])}, Offset: &offset,
		}}})
		at++
	}
	send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{ExitCode: 3, Exited: true, Status: "exit status 3"}}})
	return nil
}

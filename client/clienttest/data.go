package clienttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"
)

// data is the data plane: the agents of all sandboxes.
func (s *Server) data(mux *http.ServeMux) {
	path, handler := processconnect.NewProcessHandler(&s.programs)
	mux.Handle("/data"+path, http.StripPrefix("/data", s.routed(handler)))
	mux.Handle("GET /data/health", s.routed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })))
	mux.Handle("GET /data/files", s.routed(http.HandlerFunc(s.readFile)))
	mux.Handle("POST /data/files", s.routed(http.HandlerFunc(s.writeFile)))
}

// routed asks for a sandbox that runs, and for its token.
func (s *Server) routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := cube.SandboxID(r.Header.Get("E2b-Sandbox-Id"))
		s.mu.Lock()
		b := s.find(id)
		there, token := b != nil && b.State == "running", ""
		if b != nil {
			token = b.AccessToken
		}
		s.mu.Unlock()
		switch {
		case !there:
			answer(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": 502})
		case r.Header.Get("E2b-Sandbox-Port") != "49983":
			answer(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox is running but port is not open", "port": 1, "code": 502})
		case r.URL.Path != "/data/health" && r.Header.Get("X-Access-Token") != token:
			fail(w, http.StatusUnauthorized, "unauthorized access")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Server) readFile(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok := s.files[cube.SandboxID(r.Header.Get("E2b-Sandbox-Id"))][r.URL.Query().Get("path")]
	if !ok {
		fail(w, http.StatusNotFound, "path '"+r.URL.Query().Get("path")+"' does not exist")
		return
	}
	io.WriteString(w, content)
}

func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[cube.SandboxID(r.Header.Get("E2b-Sandbox-Id"))][r.URL.Query().Get("path")] = string(b)
	answer(w, http.StatusOK, []any{})
}

// errStop is what the data plane says for the agent when the server stops.
func errStop() error {
	return connect.NewError(connect.CodeUnavailable, errors.New("the server is restarting; connect again"))
}

// programs are those that run. These there are: "echo WORDS" to standard output,
// "complain WORDS" to standard error, "exit N", "/bin/true", "signal N", "cat", "whoami", "env",
// "forever", "stop" and "stop before", which end as when the server stops, the latter before
// it has begun, "break", whose connection breaks, "late", which does not say that it has
// begun, "never", which does not begin, and "size", which tells the sizes of its terminal
// until it reads q.
type programs struct {
	processconnect.UnimplementedProcessHandler
	mu      sync.Mutex
	last    uint32
	running map[uint32]*program
	output  Output
	reads   int // of output
	signals []string
}

type program struct {
	input  chan []byte // closed by CloseStdin
	sizes  chan *process.PTY_Size
	killed chan struct{}
	once   sync.Once
}

// end ends all.
func (p *programs) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.running {
		g.once.Do(func() { close(g.killed) })
	}
}

// Running returns how many programs run.
func (s *Server) Running() int {
	s.programs.mu.Lock()
	defer s.programs.mu.Unlock()
	return len(s.programs.running)
}

// Start implements process.Process.
func (p *programs) Start(ctx context.Context, r *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	if r.Msg.GetProcess().GetCmd() == "stop before" {
		return errStop()
	}
	switch r.Msg.GetProcess().GetCmd() {
	case "break":
		breaks(stream)
	case "never":
		return connect.NewError(connect.CodeInvalidArgument, errors.New("never: no such program"))
	}
	p.mu.Lock()
	p.last++
	pid, prog := p.last, &program{input: make(chan []byte), sizes: make(chan *process.PTY_Size), killed: make(chan struct{})}
	p.running[pid] = prog
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, pid)
	}()
	send := func(e *process.ProcessEvent) { stream.Send(&process.StartResponse{Event: e}) }
	if r.Msg.GetProcess().GetCmd() == "late" {
		<-ctx.Done()
		return ctx.Err()
	}
	send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}})
	code, err := prog.run(ctx, r, func(out *process.ProcessEvent_DataEvent) {
		send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: out}})
	})
	if err != nil {
		return err
	}
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(code), Exited: true, Status: fmt.Sprintf("exit status %d", code)}
	if code < 0 {
		end = &process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: " + syscall.Signal(-code).String()}
	}
	send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
	return nil
}

// run returns an exit status, or a signal as a number below 0.
func (g *program) run(ctx context.Context, r *connect.Request[process.StartRequest], out func(*process.ProcessEvent_DataEvent)) (int, error) {
	stdout := func(s string) {
		out(&process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(s)}})
	}
	cmd, args := r.Msg.Process.Cmd, r.Msg.Process.Args
	switch cmd {
	case "echo":
		stdout(strings.Join(args, " ") + "\n")
	case "complain":
		out(&process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(strings.Join(args, " ") + "\n")}})
	case "stop":
		return 0, errStop()
	case "/bin/true":
	case "exit":
		return strconv.Atoi(args[0])
	case "signal":
		n, err := strconv.Atoi(args[0])
		return -n, err
	case "whoami":
		user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
		stdout(user + " in " + r.Msg.Process.GetCwd() + " with " + r.Msg.Process.Envs["A"] + "\n")
	case "cat":
		if !r.Msg.GetStdin() {
			return 0, nil
		}
		for b := range g.input {
			stdout(string(b))
		}
	case "forever":
		// It outlives its client, but not its deadline.
		if _, timed := ctx.Deadline(); timed {
			<-ctx.Done()
			return 0, connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		}
		<-g.killed
		return -int(syscall.SIGKILL), nil
	case "size", "/bin/bash":
		return 0, g.terminal(r.Msg, out)
	default:
		return 0, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: no such program", cmd))
	}
	return 0, nil
}

func (g *program) terminal(m *process.StartRequest, out func(*process.ProcessEvent_DataEvent)) error {
	tell := func(s *process.PTY_Size) {
		out(&process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: []byte(fmt.Sprintf("%dx%d\r\n", s.GetRows(), s.GetCols()))}})
	}
	tell(m.GetPty().GetSize())
	for {
		select {
		case s := <-g.sizes:
			tell(s)
		case b := <-g.input:
			if strings.Contains(string(b), "q") {
				return nil
			}
		case <-g.killed:
			return nil
		}
	}
}

func (p *programs) find(sel *process.ProcessSelector) (*program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.running[sel.GetPid()]
	if !ok {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", sel.GetPid()))
	}
	return g, nil
}

// SendInput implements process.Process.
func (p *programs) SendInput(ctx context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	g, err := p.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	select {
	case g.input <- append(r.Msg.Input.GetStdin(), r.Msg.Input.GetPty()...):
	case <-ctx.Done():
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// CloseStdin implements process.Process.
func (p *programs) CloseStdin(_ context.Context, r *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	g, err := p.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	close(g.input)
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

// Update implements process.Process.
func (p *programs) Update(ctx context.Context, r *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	g, err := p.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	select {
	case g.sizes <- r.Msg.GetPty().GetSize():
	case <-ctx.Done():
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// SendSignal implements process.Process.
func (p *programs) SendSignal(_ context.Context, r *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	p.mu.Lock()
	p.signals = append(p.signals, fmt.Sprintf("%v to %d of %s", r.Msg.Signal, r.Msg.Process.GetPid(), r.Header().Get(agentapi.OutputLives)))
	p.mu.Unlock()
	g, err := p.find(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	g.once.Do(func() { close(g.killed) })
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

package process

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"
	"cubesandbox/guest/spawn"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// host starts processes on this machine, without namespaces; a process group
// stands for a control group.
type host struct {
	mu     sync.Mutex
	groups map[string]int // name → process group, 0 before it has a process
}

func (h *host) Create(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.groups[name] = 0
	return nil
}

func (h *host) Kill(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return unix.Kill(-h.groups[name], unix.SIGKILL)
}

func (h *host) Remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pgid := h.groups[name]; pgid != 0 && unix.Kill(-pgid, 0) == nil {
		return false
	}
	delete(h.groups, name)
	return true
}

// wait returns when no process of a group is left; orphans come to this process.
func (h *host) wait(name string) {
	h.mu.Lock()
	pgid := h.groups[name]
	h.mu.Unlock()
	for {
		if _, err := unix.Wait4(-pgid, nil, 0, nil); err == unix.ECHILD {
			return
		}
	}
}

func (h *host) Spawn(_ context.Context, q spawn.Request, fds [3]int) (*spawn.Child, error) {
	path, err := exec.LookPath(q.Cmd)
	if err != nil {
		return nil, &spawn.Error{Failure: spawn.FailureCommand, Text: err.Error()}
	}
	pid, err := syscall.ForkExec(path, append([]string{q.Cmd}, q.Args...), &syscall.ProcAttr{
		Env: append(q.Env, "PATH="+spawn.DefaultPath), Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: q.Terminal},
	})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.groups[q.Cgroup] = pid
	h.mu.Unlock()
	child, end := spawn.NewChild(pid)
	go func() {
		var status unix.WaitStatus
		unix.Wait4(pid, &status, 0, nil)
		end(status)
	}()
	return child, nil
}

func (h *host) Signal(pid int, sig syscall.Signal) error { return unix.Kill(pid, sig) }

func (h *host) OpenPTY(context.Context, string) (int, int, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, -1, err
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	return master, slave, err
}

// serve returns a client of a service whose processes run on this machine.
func serve(t *testing.T) (processconnect.ProcessClient, *Table, *host) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	h := &host{groups: make(map[string]int)}
	table := NewTable(func(context.Context) (Starter, error) { return h, nil }, h, h, func() {})
	mux := http.NewServeMux()
	path, handler := processconnect.NewProcessHandler(&Service{Table: table})
	mux.Handle(path, Batched(handler))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Cleanup(func() {
		for _, p := range table.List() {
			p.kill()
			<-p.done
		}
	})
	return processconnect.NewProcessClient(srv.Client(), srv.URL), table, h
}

// events collects what a stream says.
type events struct {
	pid         uint32
	out, errs   string
	pty         string
	end         *process.ProcessEvent_EndEvent
	err         error
	first, last string
}

func (e *events) add(ev *process.ProcessEvent) {
	kind := fmt.Sprintf("%T", ev.GetEvent())
	if e.first == "" {
		e.first = kind
	}
	e.last = kind
	e.out += string(ev.GetData().GetStdout())
	e.errs += string(ev.GetData().GetStderr())
	e.pty += string(ev.GetData().GetPty())
	if s := ev.GetStart(); s != nil {
		e.pid = s.Pid
	}
	if ev.GetEnd() != nil {
		e.end = ev.GetEnd()
	}
}

func shell(script string) *process.StartRequest {
	no := false
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: &no}
}

// begin starts a process and returns after its first event.
func begin(t *testing.T, ctx context.Context, c processconnect.ProcessClient, req *process.StartRequest) (*connect.ServerStreamForClient[process.StartResponse], *events) {
	t.Helper()
	s, err := c.Start(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	e := &events{}
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	e.add(s.Msg().Event)
	return s, e
}

func finish(s *connect.ServerStreamForClient[process.StartResponse], e *events) *events {
	for s.Receive() {
		e.add(s.Msg().Event)
	}
	e.err = s.Err()
	return e
}

func run(t *testing.T, c processconnect.ProcessClient, req *process.StartRequest) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return finish(begin(t, ctx, c, req))
}

func selector(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

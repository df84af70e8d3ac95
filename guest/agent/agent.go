// Package agent is process 1 of a sandbox: it starts the users' init and starts
// it again when it dies, serves envd to users and the control protocol to the
// server (see package agentapi), and watches memory.
//
// An idle agent runs no timers and wakes up for nothing.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/asuser"
	"cubesandbox/guest/bareinit"
	"cubesandbox/guest/cgroup"
	"cubesandbox/guest/process"

	"golang.org/x/sys/unix"
)

// Version of the program, set at link time.
var Version = "dev"

// Heap settings. What the agent holds is in every image, so garbage is collected
// early; the limit makes a burst of requests collect harder instead of growing.
const (
	heapPercent = 50
	heapLimit   = 32 << 20 // bytes
	heapSmall   = 4 << 20  // bytes
)

// keepsTmp keeps gVisor from mounting memory over /tmp; the template has it.
const keepsTmp = "/tmp/.on-disk"

// Agent is the state of the agent.
type Agent struct {
	table  *process.Table
	files  *asuser.Runner
	inits  *supervisor
	events *eventLog
	memory *memoryWatch
	conns  *connections
	cpu    cpuMeter
	who    identity

	// configuring is held while a life begins: one after the other.
	configuring sync.Mutex
	hooks       *hooks
	subscribers *subscribers

	mu         sync.Mutex // guards all below
	sandbox    string
	generation uint64
	token      string
	filled     bool // files were put in place, or begun to be
}

// Run runs the agent until a listener fails.
func Run() error {
	if !bareinit.Linked() {
		return errors.New(`this program cannot be its own init: link it with -ldflags "-E cube_guest_entry"`)
	}
	debug.SetGCPercent(heapPercent)
	debug.SetMemoryLimit(heapLimit)
	// Waking a second thread costs more in gVisor than it brings: a start of a
	// process took 9.2 ms of CPU time with two processors, 7.9 ms with one.
	runtime.GOMAXPROCS(1)
	unix.Umask(0o022)
	os.Remove(keepsTmp) // it may be gone: somebody else made this root file system
	if err := cgroup.Setup(); err != nil {
		return err
	}
	who, err := openIdentity()
	if err != nil {
		return err
	}
	a := &Agent{events: newEventLog(), conns: newConnections(), cpu: cpuMeter{read: busyTime}, who: who}
	a.inits = newSupervisor(a.events)
	a.files = asuser.NewRunner(a.inits.namespace)
	a.memory = newMemoryWatch(func() bool { return a.table.Active() }, a.oom)
	starter := func(ctx context.Context) (process.Starter, error) { return a.inits.current(ctx) }
	a.table = process.NewTable(starter, cgroup.Groups{}, a.files, a.memory.changed)
	a.hooks = newHooks(a.table.Run, a.events.add)
	if a.subscribers, err = openSubscribers(subscribersDir, a.notify, a.events.add); err != nil {
		return err
	}
	if err := a.inits.start(); err != nil {
		return err
	}
	return a.serve()
}

// serve listens on both ports until one fails.
func (a *Agent) serve() error {
	failed := make(chan error, 2)
	for port, handler := range map[uint16]http.Handler{
		agentapi.EnvdPort:    a.envd(),
		agentapi.ControlPort: a.control(),
	} {
		l, err := listen(port)
		if err != nil {
			return err
		}
		// There is no time limit for a request's head: the server connects to a
		// sandbox before it freezes it for a pool, and asks when somebody has claimed
		// it, which may be days later. Connections are limited by number.
		srv := &http.Server{
			Handler:        handler,
			IdleTimeout:    640 * time.Second,
			MaxHeaderBytes: 64 << 10,
			ConnContext:    connContext,
			ErrorLog:       quiet,
		}
		go func() {
			failed <- fmt.Errorf("serve port %d: %w", port, srv.Serve(&tracked{l, a.conns, port == agentapi.ControlPort}))
		}()
	}
	return <-failed
}

// listen listens on all addresses: programs inside use envd too. Keep-alive
// probes are off, so that a quiet connection costs nothing.
func listen(port uint16) (net.Listener, error) {
	c := net.ListenConfig{KeepAlive: -1}
	l, err := c.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// configure begins a generation and returns the number of the last event before it.
// It returns when programs have been told: the server lets no request in before.
func (a *Agent) configure(c *agentapi.Configure, caller net.Conn) (lastEvent uint64, err error) {
	if c.Version < 1 || c.SandboxID == "" || c.Generation == 0 {
		return 0, errors.New("configure: version, sandboxId and generation must be set")
	}
	a.configuring.Lock()
	defer a.configuring.Unlock()
	lastEvent = a.events.newest()
	if err := a.assume(c, caller); err != nil {
		return 0, err
	}
	if c.Spare {
		return lastEvent, nil
	}
	if c.Restored {
		a.hooks.runAll(c.SandboxID, c.Generation)
	}
	// Last of all: who watches this file finds everything else done.
	if err := a.who.writeGeneration(c.Generation); err != nil {
		return 0, err
	}
	if c.Restored {
		a.subscribers.tell()
	}
	return lastEvent, nil
}

// assume makes the agent's and the kernel's state that of the life that begins. There
// is no generator to be seeded anew: all randomness of the agent is the kernel's,
// and that is the host's.
func (a *Agent) assume(c *agentapi.Configure, caller net.Conn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The generation may be lower than the one before: a copy begins at 1, whatever
	// life its image was saved in.
	if c.Hostname != "" {
		if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
			return fmt.Errorf("configure: set hostname %q: %w", c.Hostname, err)
		}
	}
	if !c.Spare {
		if err := a.who.take(c); err != nil {
			return err
		}
	}
	if err := cgroup.LimitPids(c.Pids); err != nil {
		return fmt.Errorf("configure: limit processes: %w", err)
	}
	a.memory.setLimit(c.MemoryBytes)
	a.cpu.restart()
	a.table.SetEnv(c.Env)
	a.table.SetDefaults(cmp.Or(c.User, process.DefaultUser), "")
	a.token = c.AccessToken
	if c.SandboxID != a.sandbox || c.Generation != a.generation { // told twice, it counts once
		a.beginLife(c)
	}
	a.sandbox, a.generation = c.SandboxID, c.Generation
	if !c.SameLife {
		a.conns.begin(caller)
	}
	return nil
}

// notify sends a signal to a process of users.
func (a *Agent) notify(ctx context.Context, uid uint32, pid int, sig syscall.Signal) error {
	i, err := a.inits.current(ctx)
	if err != nil {
		return err
	}
	return i.Notify(ctx, uid, pid, sig)
}

// beginLife tells the processes that another life has begun, and how long it was not.
func (a *Agent) beginLife(c *agentapi.Configure) {
	if c.SavedUnixNano <= 0 {
		a.table.Begin(c.Generation, time.Time{})
		return
	}
	saved := time.Unix(0, c.SavedUnixNano)
	a.table.Begin(c.Generation, saved)
	if down := time.Duration(c.TimeUnixNano - c.SavedUnixNano); down > 0 {
		a.table.Shift(saved, down)
	}
}

// oom takes note that a process of a control group was killed for want of memory.
func (a *Agent) oom(group, detail string) {
	a.table.OOM(group)
	a.events.add(agentapi.EventOOM, detail)
}

func (a *Agent) currentToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

func (a *Agent) status() agentapi.Status {
	a.mu.Lock()
	generation := a.generation
	a.mu.Unlock()
	late, gone := a.inits.late()
	return agentapi.Status{Generation: generation, Processes: a.table.Running(), MemoryBytes: a.memory.used(), InitLate: late, InitGone: gone}
}

// quiesce closes every connection but the caller's and gives back the memory of
// past requests, so that an image holds neither.
func (a *Agent) quiesce(caller net.Conn) {
	a.conns.closeAll(caller)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapInuse < heapSmall && m.HeapAlloc < m.NextGC/2 {
		return // a collection would touch more pages than it frees, and is not due in every copy
	}
	runtime.GC() // the first empties the pools of buffers only by half
	debug.FreeOSMemory()
}

// Package process serves envd's process.Process: programs that users start,
// their output, input, terminals, signals and ends.
//
// A process outlives the request that started it; only its deadline, a signal or
// the end of the sandbox ends it.
package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/spawn"

	"connectrpc.com/connect"
)

// remember is how long an ended process can still be connected to.
const remember = 30 * time.Second

// maxEnded bounds how many ended processes are remembered.
const maxEnded = 256

// Starter starts processes in the users' namespaces; *spawn.Init is one.
type Starter interface {
	Spawn(ctx context.Context, q spawn.Request, fds [3]int) (*spawn.Child, error)
	Signal(pid int, sig syscall.Signal) error
}

// Groups are the control groups of started processes; package cgroup has those
// of a sandbox.
type Groups interface {
	Create(name string) error
	// Kill kills every process of a group.
	Kill(name string) error
	// Remove removes a group, and reports false while processes are left in it.
	Remove(name string) bool
}

// Terminals opens terminals; *asuser.Runner does.
type Terminals interface {
	OpenPTY(ctx context.Context, user string) (master, slave int, err error)
}

// Table holds the processes that were started in this sandbox. Its methods may
// be called concurrently.
type Table struct {
	starter   func(context.Context) (Starter, error)
	groups    Groups
	terminals Terminals
	changed   func()
	group     atomic.Uint64 // number of the newest control group
	history   history

	mu    sync.Mutex // guards all below
	byPID map[int]*Process
	// starting have no number yet; until when they may run, zero: for ever.
	starting map[*Process]time.Time
	ended    []*Process // oldest first
	left     []string   // groups of ended processes that left others behind
	running  int
	env      map[string]string
	user     string
	cwd      string
	// generation is the life of the sandbox that has begun last.
	generation uint64
}

// NewTable returns an empty table. starter returns what starts processes now;
// changed is called when a process has started or ended.
func NewTable(starter func(context.Context) (Starter, error), groups Groups, terminals Terminals, changed func()) *Table {
	t := &Table{
		starter: starter, groups: groups, terminals: terminals, changed: changed,
		byPID: make(map[int]*Process), starting: make(map[*Process]time.Time), user: DefaultUser,
	}
	t.history.outputs = t.outputs
	t.history.read.max, t.history.loose.max, t.history.away.max = maxHistory, maxLoose, maxHeld
	return t
}

// DefaultUser is who a process runs as when nobody says otherwise.
const DefaultUser = "user"

// SetEnv sets the environment that every process gets below its own.
func (t *Table) SetEnv(env map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.env = env
}

// Env returns the environment that every process gets. It must not be changed.
func (t *Table) Env() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.env
}

// SetDefaults sets the user and working directory of requests that name none;
// empty leaves one as it is.
func (t *Table) SetDefaults(user, cwd string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if user != "" {
		t.user = user
	}
	if cwd != "" {
		t.cwd = cwd
	}
}

// User returns the user of requests that name none.
func (t *Table) User() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.user
}

// Running returns how many processes are running.
func (t *Table) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// Active reports whether any process runs, those included that ended ones have
// left behind.
func (t *Table) Active() bool {
	t.sweep()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running > 0 || len(t.left) > 0
}

// List returns the running processes.
func (t *Table) List() []*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Process, 0, t.running)
	for _, p := range t.byPID {
		if !p.over() {
			list = append(list, p)
		}
	}
	return list
}

// Find returns the process that a selector names, ended ones included for as
// long as they are remembered; of several with one tag the newest. Its errors
// are Connect errors.
func (t *Table) Find(s *process.ProcessSelector) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch by := s.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if p := t.byPID[int(by.Pid)]; p != nil {
			return p, nil
		}
	case *process.ProcessSelector_Tag:
		var found *Process
		for _, p := range t.byPID {
			if p.Tag != nil && *p.Tag == by.Tag && (found == nil || p.number > found.number) {
				found = p
			}
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, notFound(s)
}

// notFound is the error for a selector that names nothing.
func notFound(s *process.ProcessSelector) error {
	switch s := s.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.Pid))
	case *process.ProcessSelector_Tag:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", s.Tag))
	}
	return connect.NewError(connect.CodeInvalidArgument, errors.New("the request names neither pid nor tag of a process"))
}

// OOM says that a process of a control group was killed for want of memory.
func (t *Table) OOM(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.byPID {
		if p.group == group {
			p.oom.Store(true)
		}
	}
}

// newGroup makes a control group for a process that is about to start.
func (t *Table) newGroup() (name string, number uint64, err error) {
	t.sweep()
	number = t.group.Add(1)
	name = strconv.FormatUint(number, 10)
	return name, number, t.groups.Create(name)
}

// leave takes note of a control group whose process has ended, to be removed
// when all that it left behind has ended too.
func (t *Table) leave(group string) {
	if t.groups.Remove(group) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = append(t.left, group)
}

// discard takes note of a control group in which no process could be started. One may
// have been all the same, for which nobody has waited.
func (t *Table) discard(group string) {
	if t.groups.Remove(group) {
		return
	}
	t.groups.Kill(group)
	t.leave(group)
}

// sweep removes the control groups that have become empty.
func (t *Table) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = slices.DeleteFunc(t.left, t.groups.Remove)
}

// add takes note that a process which was expected has started. At its deadline it is killed.
func (t *Table) add(p *Process) {
	t.mu.Lock()
	p.deadline.set(p.begun, t.starting[p], p.expire)
	delete(t.starting, p)
	t.byPID[p.PID] = p
	t.running++
	t.mu.Unlock()
	t.changed()
}

// finished moves p to those that have ended, and forgets old ones.
func (t *Table) finished(p *Process) {
	t.mu.Lock()
	t.running--
	t.ended = append(t.ended, p)
	for len(t.ended) > maxEnded {
		t.release(t.ended[0])
		t.ended = slices.Delete(t.ended, 0, 1)
	}
	t.remember(p, remember)
	t.mu.Unlock()
	t.changed()
}

// remember keeps an ended process for a while. The caller holds mu: else Shift might come
// between the time that it is now and the deadline that is set by it.
func (t *Table) remember(p *Process, while time.Duration) {
	now := time.Now()
	p.forgotten.set(now, now.Add(while), func() { t.forget(p) })
}

// forget forgets an ended process, but not while somebody may take up its output again.
func (t *Table) forget(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.ended, p)
	if i < 0 {
		return
	}
	if left := p.out.awaited(); left > 0 {
		t.remember(p, left)
		return
	}
	t.ended = slices.Delete(t.ended, i, i+1)
	t.release(p)
}

// release gives up the number of an ended process, which may be in use again, and what
// is kept of its output.
func (t *Table) release(p *Process) {
	p.forgotten.stop()
	p.out.release()
	if t.byPID[p.PID] == p {
		delete(t.byPID, p.PID)
	}
}

package spawn

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cubesandbox/guest/bareinit"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

const (
	// nudge is how long init may take to answer before it is continued, in case
	// users' root has stopped it.
	nudge = time.Second
	// patience is how long it may take before it is killed.
	patience = 30 * time.Second
)

// Init is the agent's side of a running init. Its methods may be called
// concurrently.
type Init struct {
	pid   int // in the agent's PID namespace
	conn  *net.UnixConn
	mntns *os.File

	accounts users.Cache
	starting chan struct{} // holds one token: one request is on its way at a time
	answers  chan answer   // of kindStarted, to whoever holds the token
	writing  chan struct{} // holds one token: one frame is sent at a time
	late     atomic.Int32  // how many requests have waited for longer than nudge

	mu       sync.Mutex // guards all below
	children map[int]*Child
	reaped   bool

	done chan struct{} // closed when init and its processes are gone
}

// answer is what became of a request.
type answer struct {
	child       *Child
	step, errno uint32 // why there is no child
}

// Child is a process that init has started.
type Child struct {
	// PID is its number in the users' PID namespace.
	PID    int
	done   chan struct{}
	status unix.WaitStatus
}

// NewChild returns a running child, and what ends it.
func NewChild(pid int) (*Child, func(unix.WaitStatus)) {
	c := &Child{PID: pid, done: make(chan struct{})}
	return c, c.end
}

func (c *Child) end(status unix.WaitStatus) {
	c.status = status
	close(c.done)
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status is how the process ended, once Done is closed.
func (c *Child) Status() unix.WaitStatus { return c.status }

// devNull is what every init has as its standard descriptors. It is not our own: users'
// root can open what init has open. It is kept: users' root can remove the device.
var devNull = sync.OnceValues(func() (int, error) {
	return unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
})

// Launch starts an init from the agent's own program and returns when its
// namespaces are set up. Our working directory must be the mount of InfoDir: init's then
// is the one of its namespace, wherever users' root has moved that.
func Launch() (*Init, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair for init: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "init"), pair[1]
	defer ours.Close()
	defer unix.Close(theirs)
	null, err := devNull()
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"cube-guest", "init"}, &syscall.ProcAttr{
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(theirs)},
		Sys:   &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start init: %w", err)
	}
	i := newInit(pid)
	if err := i.connect(ours); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		wait(pid)
		return nil, err
	}
	go i.watch()
	return i, nil
}

func newInit(pid int) *Init {
	return &Init{
		pid: pid, starting: make(chan struct{}, 1), answers: make(chan answer, 1), writing: make(chan struct{}, 1),
		children: make(map[int]*Child), done: make(chan struct{}),
	}
}

// connect waits until init is ready.
func (i *Init) connect(ours *os.File) error {
	c, err := net.FileConn(ours)
	if err != nil {
		return fmt.Errorf("connect to init: %w", err)
	}
	i.conn = c.(*net.UnixConn)
	i.conn.SetReadDeadline(time.Now().Add(patience))
	kind, words, err := readFrame(i.conn)
	switch {
	case err != nil:
	case kind == bareinit.KindFailed:
		err = fmt.Errorf("step %d: %w", words[0], unix.Errno(words[1]))
	case kind != bareinit.KindReady:
		err = errForm
	default:
		i.mntns, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", i.pid))
	}
	if err != nil {
		i.conn.Close()
		return fmt.Errorf("init did not become ready: %w", err)
	}
	i.conn.SetReadDeadline(time.Time{})
	return nil
}

// watch owns the life of init: it takes its messages, reaps it, and then ends
// the children of which no exit was reported.
func (i *Init) watch() {
	received := make(chan struct{})
	go func() {
		defer close(received)
		i.receive()
		i.Kill() // it has closed its end, or talks nonsense
	}()
	i.reap()
	i.conn.Close() // users' root may hold the other end
	<-received
	i.mu.Lock()
	for pid, c := range i.children {
		delete(i.children, pid)
		c.end(unix.WaitStatus(unix.SIGKILL))
	}
	i.children = nil
	i.mu.Unlock()
	i.mntns.Close()
	close(i.done)
}

func (i *Init) receive() {
	for {
		kind, words, err := readFrame(i.conn)
		if err != nil {
			return
		}
		switch kind {
		case bareinit.KindStarted:
			if !i.adopt(words) {
				return
			}
		case bareinit.KindExited:
			i.end(int(words[0]), unix.WaitStatus(words[1]))
		default:
			return
		}
	}
}

// adopt makes the child known before its exit can be read. What nobody asked
// for is ignored. It returns false for a PID that cannot be: users' root may speak
// in init's place, and a child that is overwritten would never end.
func (i *Init) adopt(words [3]uint32) bool {
	if len(i.starting) == 0 || len(i.answers) > 0 {
		return true
	}
	a := answer{step: words[1], errno: words[2]}
	if a.step == 0 {
		pid := int(words[0])
		i.mu.Lock()
		defer i.mu.Unlock()
		if pid < 2 || pid > math.MaxInt32 || i.children[pid] != nil {
			return false
		}
		a.child, _ = NewChild(pid)
		i.children[pid] = a.child
	}
	i.answers <- a // has room: only this goroutine sends
	return true
}

func (i *Init) end(pid int, status unix.WaitStatus) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.children[pid]; c != nil && (status.Exited() || status.Signaled()) {
		delete(i.children, pid)
		c.end(status)
	}
}

// Spawn starts a process. fds become its standard descriptors; they stay the
// caller's to close. ctx bounds the wait for its turn only. Errors are *Error,
// ErrInitDied or ctx's.
func (i *Init) Spawn(ctx context.Context, q Request, fds [3]int) (*Child, error) {
	u, err := i.accounts.Lookup(q.User)
	if err != nil {
		return nil, &Error{FailureUser, err.Error()}
	}
	payload, err := q.encode(u)
	if err != nil {
		return nil, err
	}
	a, err := i.ask(ctx, appendFrame(nil, bareinit.KindSpawn, payload), unix.UnixRights(fds[:]...))
	if err != nil {
		return nil, err
	}
	if a.child == nil {
		return nil, q.failure(u, a.step, a.errno)
	}
	return a.child, nil
}

// hurry sees to it that init answers within patience or dies, until the function
// that it returns is called.
func (i *Init) hurry() func() {
	counted := make(chan struct{})
	nudging := time.AfterFunc(nudge, func() {
		defer close(counted)
		i.late.Add(1)
		i.kill(unix.SIGCONT)
	})
	killing := time.AfterFunc(patience, i.Kill)
	return func() {
		killing.Stop()
		if !nudging.Stop() {
			<-counted
			i.late.Add(-1)
		}
	}
}

// Late reports whether init has had more than a second for its answer to a request. It is
// not when it has answered at last, or is dead.
func (i *Init) Late() bool { return i.late.Load() > 0 }

// Signal sends a signal to a child. Nothing happens if it has ended.
func (i *Init) Signal(pid int, sig syscall.Signal) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(pid))
	defer i.hurry()()
	rest, err := i.begin(context.Background(), appendFrame(nil, bareinit.KindSignal, binary.LittleEndian.AppendUint32(b, uint32(sig))), nil)
	if err != nil {
		return err
	}
	return i.finish(rest)
}

// PID is init's number in the agent's PID namespace.
func (i *Init) PID() int { return i.pid }

// MountNamespace is a descriptor of the users' mount namespace, valid until Done.
func (i *Init) MountNamespace() *os.File { return i.mntns }

// Done is closed when init has ended and all its processes with it.
func (i *Init) Done() <-chan struct{} { return i.done }

// Kill ends init and all its processes.
func (i *Init) Kill() { i.kill(unix.SIGKILL) }

// Alive reports whether init is running.
func (i *Init) Alive() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.reaped
}

func (i *Init) kill(sig syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.reaped { // else its number may be another's
		unix.Kill(i.pid, sig)
	}
}

// reap waits for init to end. It is only reaped under the lock, so that its
// number is not used again while somebody is about to send it a signal.
func (i *Init) reap() {
	for unix.Waitid(unix.P_PID, i.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	wait(i.pid)
	i.reaped = true
}

func wait(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

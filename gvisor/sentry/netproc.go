package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/network"
)

// Files of the network process in the run directory.
const (
	networkSocket = "network.sock"
	networkRecord = "network.json"
	networkLog    = "network.log"
)

// networkProcess is the keeper's hold on cube-network. Whichever of the two dies
// is handed every NIC again by the other.
type networkProcess struct {
	k        *Keeper
	client   *network.Client
	listener *os.File // shared with the process, so that clients need not know of a restart
	wg       sync.WaitGroup
	ctx      context.Context // ends with end
	cancel   context.CancelFunc

	mu    sync.Mutex // guards the following
	held  heldProcess
	stop  chan struct{} // closed by release and end
	alive bool          // held has not been reaped
}

// heldProcess is a process that we can signal and wait for.
type heldProcess struct {
	pidRecord
	child bool // we have to reap it
	pidfd *os.File
}

// pidRecord names a process for ever.
type pidRecord struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// takeUpTime bounds how long a network process that runs may take to hand over what
// it has, before another one is started.
const takeUpTime = 5 * time.Second

// startNetwork takes up a network process that runs, or starts one.
func (k *Keeper) startNetwork(ctx context.Context) (*networkProcess, error) {
	n := &networkProcess{k: k, client: network.NewClient(filepath.Join(k.conf.RunDir, networkSocket)), stop: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if n.running() {
		if err := n.takeUp(ctx); err != nil {
			k.log.Error("the network process that runs cannot be taken up; another takes its place", "pid", n.held.PID, "error", err)
			if err := n.kill(); err != nil {
				return nil, err
			}
		} else if n.older() {
			k.log.Warn("the network process that runs is of another build and is replaced; connections are reset", "pid", n.held.PID)
			if err := n.kill(); err != nil {
				return nil, err
			}
		}
	}
	if n.listener == nil {
		if err := n.listen(); err != nil {
			return nil, err
		}
	}
	if !n.alive {
		if err := n.spawn(ctx); err != nil {
			n.listener.Close()
			return nil, err
		}
	}
	n.wg.Go(n.supervise)
	return n, nil
}

func (n *networkProcess) listen() error {
	l, err := fdrpc.Listen(filepath.Join(n.k.conf.RunDir, networkSocket), 0o600)
	if err != nil {
		return err
	}
	defer l.Close()
	n.listener, err = l.File()
	return err
}

// running finds the process that a former keeper has written down.
func (n *networkProcess) running() bool {
	b, err := os.ReadFile(filepath.Join(n.k.conf.RunDir, networkRecord))
	var p pidRecord
	if err != nil || json.Unmarshal(b, &p) != nil || p.PID <= 0 {
		return false
	}
	pidfd, _, err := openProcess(p.PID, p.Start)
	if err != nil {
		return false
	}
	n.held, n.alive = heldProcess{pidRecord: p, pidfd: pidfd}, true
	return true
}

// takeUp gets back from a running network process what a new keeper lacks, and
// drops from it what is no more. A NIC that it does not give is lost.
func (n *networkProcess) takeUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeUpTime)
	defer cancel()
	lives, err := n.client.Lives(ctx)
	if err != nil {
		return err
	}
	for _, id := range lives {
		l, err := n.k.find(id)
		if err != nil || isGone(l) {
			if err := n.client.Unplug(ctx, id); err != nil {
				n.k.log.Warn("unplug", "life", id, "error", err)
			}
			continue
		}
		nic, err := n.client.NIC(ctx, id)
		if err != nil {
			n.k.log.Error("the NIC of a life is lost", "life", id, "error", err)
			continue
		}
		l.mu.Lock()
		l.nic = nic
		l.mu.Unlock()
	}
	n.listener, err = n.client.Listener(ctx)
	return err
}

func isGone(l *life) bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// spawn starts a process on the listener and plugs every NIC that there is. After a
// failure it does not run.
func (n *networkProcess) spawn(ctx context.Context) error {
	logf, err := os.OpenFile(filepath.Join(n.k.conf.RunDir, networkLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logf.Close()
	cmd := exec.Command(n.k.conf.Network)
	cmd.ExtraFiles = []*os.File{n.listener}
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = logf, logf
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pidfd, err := n.introduce(ctx, cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("%s: %w; see %s", n.k.conf.Network, err, logf.Name())
	}
	cmd.Process.Release()
	n.plugAll(ctx)
	// What runs is never dropped: whoever ends us finds it here.
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held.pidfd != nil {
		n.held.pidfd.Close()
	}
	n.held, n.alive = pidfd, true
	return nil
}

// introduce writes a new process down and waits until it answers.
func (n *networkProcess) introduce(ctx context.Context, pid int) (heldProcess, error) {
	pidfd, st, err := openProcess(pid, 0)
	if err != nil {
		return heldProcess{}, err
	}
	p := heldProcess{pidRecord: pidRecord{pid, st.start}, child: true, pidfd: pidfd}
	b, err := json.Marshal(p.pidRecord)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.k.conf.RunDir, networkRecord), b, 0o600)
	}
	if err == nil {
		err = n.client.Connect(ctx)
	}
	if err != nil {
		pidfd.Close()
		return heldProcess{}, fmt.Errorf("it does not answer: %w", err)
	}
	return p, nil
}

// plugAll goes on over single failures: the others are to have their network.
func (n *networkProcess) plugAll(ctx context.Context) {
	for _, l := range n.k.all() {
		nic := l.hostNIC()
		if nic == nil || isGone(l) {
			continue
		}
		if err := n.tryPlug(ctx, l, nic); err != nil {
			n.k.log.Error("a life stays without a network", "life", l.id, "error", err)
		}
		n.dropGone(l)
	}
}

// dropGone unplugs a life that has ended while it was plugged in: nobody else would.
func (n *networkProcess) dropGone(l *life) {
	if isGone(l) {
		n.unplug(l.id)
	}
}

// supervise starts the process again whenever it has ended.
func (n *networkProcess) supervise() {
	for n.waitEnd() {
		for !n.stopped() {
			ctx, cancel := context.WithTimeout(n.ctx, 10*time.Second)
			err := n.spawn(ctx)
			cancel()
			if err == nil {
				break
			}
			n.k.log.Error("the network process cannot be started", "error", err)
			select {
			case <-time.After(time.Second): // it may be a passing want of memory
			case <-n.stop:
			}
		}
	}
}

func (n *networkProcess) stopped() bool {
	select {
	case <-n.stop:
		return true
	default:
		return false
	}
}

// waitEnd returns when the process has ended and is reaped; false when nobody
// wants to know any more.
func (n *networkProcess) waitEnd() bool {
	n.mu.Lock()
	p := n.held
	stopped := n.stopped()
	n.mu.Unlock()
	if stopped || waitReadable(p.pidfd) != nil {
		return false
	}
	ws := n.reap()
	n.k.log.Warn("the network process ended", "pid", p.PID, "signal", ws.Signal(), "status", ws.ExitStatus())
	return true
}

// reap takes the status of the process, which has ended.
func (n *networkProcess) reap() unix.WaitStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ws unix.WaitStatus
	if n.held.child && n.alive {
		ws, _ = reap(n.held.PID)
	}
	n.alive = false
	return ws
}

func (n *networkProcess) call(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return f(ctx)
}

// plug hands the NIC of a life over. When the process dies under the call, its
// successor gets it, be it from here or from plugAll; plugging twice is harmless.
func (n *networkProcess) plug(l *life, nic *os.File) error {
	err := n.call(func(ctx context.Context) error { return n.tryPlug(ctx, l, nic) })
	n.dropGone(l)
	return err
}

// tryPlug tries again over a connection that was found broken.
func (n *networkProcess) tryPlug(ctx context.Context, l *life, nic *os.File) (err error) {
	for range 3 {
		if err = n.client.Plug(ctx, l.id, nic); !errors.Is(err, cube.ErrUnavailable) {
			break
		}
	}
	return err
}

// unplug cuts a life off. A process that is gone has cut it off already.
func (n *networkProcess) unplug(id string) {
	err := n.call(func(ctx context.Context) error { return n.client.Unplug(ctx, id) })
	if err != nil && !errors.Is(err, cube.ErrUnavailable) {
		n.k.log.Warn("unplug", "life", id, "error", err)
	}
}

// halt ends supervise, which finishes a start that is under way.
func (n *networkProcess) halt() {
	n.mu.Lock()
	if n.stopped() {
		n.mu.Unlock()
		return
	}
	close(n.stop)
	if n.held.pidfd != nil {
		n.held.pidfd.SetReadDeadline(time.Unix(1, 0))
	}
	n.mu.Unlock()
	n.wg.Wait()
}

// release lets go of the process and leaves it running.
func (n *networkProcess) release() {
	if n.stopped() {
		return
	}
	n.halt()
	n.cancel()
	n.close()
}

func (n *networkProcess) close() {
	n.client.Close()
	n.listener.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held.pidfd != nil {
		n.held.pidfd.Close()
	}
}

// end stops the process.
func (n *networkProcess) end() error {
	n.cancel() // a start that is under way fails
	n.halt()
	err := n.kill()
	n.close()
	for _, name := range []string{networkRecord, networkSocket} {
		os.Remove(filepath.Join(n.k.conf.RunDir, name))
	}
	return err
}

// kill ends the process and reaps it: politely, then not. Nobody supervises it.
func (n *networkProcess) kill() error {
	n.mu.Lock()
	p, alive := n.held, n.alive
	n.mu.Unlock()
	if !alive {
		return nil
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := signalProcess(p.pidfd, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end network process %d: %w", p.PID, err)
		}
		p.pidfd.SetReadDeadline(time.Now().Add(takeUpTime))
		if waitReadable(p.pidfd) == nil {
			n.reap()
			return nil
		}
	}
	return fmt.Errorf("network process %d does not end", p.PID)
}

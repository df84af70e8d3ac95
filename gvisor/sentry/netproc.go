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
	stop     chan struct{} // closed by release and end

	mu    sync.Mutex // guards the following
	proc  pidRecord
	child bool // we have to reap it
	pidfd *os.File
}

// pidRecord names a process for ever.
type pidRecord struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// startNetwork takes up a network process that runs, or starts one.
func (k *Keeper) startNetwork(ctx context.Context) (*networkProcess, error) {
	path := filepath.Join(k.conf.RunDir, networkSocket)
	n := &networkProcess{k: k, client: network.NewClient(path), stop: make(chan struct{})}
	k.network = n
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if n.running() {
		if err := n.takeUp(ctx); err != nil {
			return nil, fmt.Errorf("take up the one that runs: %w", err)
		}
	} else {
		l, err := fdrpc.Listen(path, 0o600)
		if err != nil {
			return nil, err
		}
		n.listener, err = l.File()
		l.Close()
		if err != nil {
			return nil, err
		}
		if err := n.spawn(ctx); err != nil {
			return nil, err
		}
	}
	n.wg.Go(n.supervise)
	return n, nil
}

// running finds the process that a former keeper has written down.
func (n *networkProcess) running() bool {
	b, err := os.ReadFile(filepath.Join(n.k.conf.RunDir, networkRecord))
	if err != nil || json.Unmarshal(b, &n.proc) != nil {
		return false
	}
	st, err := readStat(n.proc.PID)
	if err != nil || st.start != n.proc.Start {
		return false
	}
	fd, err := unix.PidfdOpen(n.proc.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	n.pidfd = os.NewFile(uintptr(fd), "pidfd")
	return true
}

// takeUp gets back from a running network process what a new keeper lacks, and
// drops from it what is no more.
func (n *networkProcess) takeUp(ctx context.Context) error {
	lives, err := n.client.Lives(ctx)
	if err != nil {
		return err
	}
	for _, id := range lives {
		l := n.k.lives[id]
		if l == nil || isGone(l) {
			if err := n.client.Unplug(ctx, id); err != nil {
				return err
			}
			continue
		}
		nic, err := n.client.NIC(ctx, id)
		if err != nil {
			return err
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

// spawn starts a process on the listener and plugs every NIC that there is.
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
	pid := cmd.Process.Pid
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return err
	}
	st, err := readStat(pid)
	if err != nil {
		return err
	}
	n.mu.Lock()
	if n.pidfd != nil {
		n.pidfd.Close()
	}
	n.proc, n.child, n.pidfd = pidRecord{pid, st.start}, true, os.NewFile(uintptr(fd), "pidfd")
	n.mu.Unlock()
	b, _ := json.Marshal(n.proc)
	if err := os.WriteFile(filepath.Join(n.k.conf.RunDir, networkRecord), b, 0o600); err != nil {
		return err
	}
	if err := n.client.Connect(ctx); err != nil {
		return fmt.Errorf("%s does not answer: %w; see %s", n.k.conf.Network, err, logf.Name())
	}
	return n.plugAll(ctx)
}

func (n *networkProcess) plugAll(ctx context.Context) error {
	n.k.mu.Lock()
	var ls []*life
	for _, l := range n.k.lives {
		if !isGone(l) {
			ls = append(ls, l)
		}
	}
	n.k.mu.Unlock()
	for _, l := range ls {
		l.mu.Lock()
		nic := l.nic
		l.mu.Unlock()
		if nic == nil {
			continue
		}
		if err := n.client.Plug(ctx, l.rec.Life.Life, nic); err != nil {
			return err
		}
	}
	return nil
}

// supervise starts the process again whenever it has ended.
func (n *networkProcess) supervise() {
	for {
		if !n.waitEnd() {
			return
		}
		select {
		case <-n.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := n.spawn(ctx)
		cancel()
		if err != nil {
			n.k.log.Error("the network process cannot be started", "error", err)
			select {
			case <-time.After(time.Second): // it may be a passing want of memory
			case <-n.stop:
				return
			}
		}
	}
}

// waitEnd returns when the process has ended and is reaped; false when nobody
// wants to know any more.
func (n *networkProcess) waitEnd() bool {
	n.mu.Lock()
	proc, child, pidfd := n.proc, n.child, n.pidfd
	n.mu.Unlock()
	if err := waitReadable(pidfd); err != nil {
		return false
	}
	var ws unix.WaitStatus
	if child {
		unix.Wait4(proc.PID, &ws, 0, nil)
	}
	n.k.log.Warn("the network process ended", "pid", proc.PID, "signal", ws.Signal(), "status", ws.ExitStatus())
	return true
}

// waitReadable waits without a thread of its own until a pidfd says that its
// process has ended, or is closed.
func waitReadable(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0
	})
}

func (n *networkProcess) call(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return f(ctx)
}

// plug hands the NIC of a life over. When the process dies under the call, its
// successor gets it, be it from here or from plugAll; plugging twice is harmless.
func (n *networkProcess) plug(id string, nic *os.File) error {
	var err error
	for range 3 {
		err = n.call(func(ctx context.Context) error { return n.client.Plug(ctx, id, nic) })
		if !errors.Is(err, cube.ErrUnavailable) {
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

// release lets go of the process and leaves it running.
func (n *networkProcess) release() {
	select {
	case <-n.stop:
		return
	default:
	}
	close(n.stop)
	n.mu.Lock()
	n.pidfd.Close()
	n.mu.Unlock()
	n.wg.Wait()
	n.client.Close()
	n.listener.Close()
}

// end stops the process.
func (n *networkProcess) end() error {
	close(n.stop)
	n.mu.Lock()
	pidfd := n.pidfd
	n.mu.Unlock()
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), unix.SIGTERM, nil, 0) })
	if err != nil && err != unix.ESRCH {
		return err
	}
	pidfd.SetReadDeadline(time.Now().Add(5 * time.Second))
	n.wg.Wait()
	if !ended(pidfd) {
		raw.Control(func(fd uintptr) { unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
	n.client.Close()
	n.listener.Close()
	for _, name := range []string{networkRecord, networkSocket} {
		os.Remove(filepath.Join(n.k.conf.RunDir, name))
	}
	return nil
}

func ended(pidfd *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

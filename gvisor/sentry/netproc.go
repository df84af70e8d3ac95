package sentry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"cubesandbox/internal/fdrpc"
	"cubesandbox/network/api"
)

// networkSocket is the network process's socket in the run directory.
const networkSocket = "network.sock"

// networkProcess is the keeper's hold on cube-network. Whichever of the two dies
// is handed every NIC again by the other.
type networkProcess struct {
	k        *Keeper
	listener *os.File // shared with the process, so that clients need not know of a restart
	wg       sync.WaitGroup

	mu       sync.Mutex // guards the following
	client   *fdrpc.Client
	cmd      *exec.Cmd // nil for a process that a former keeper started
	stopping bool
}

// startNetwork takes up a network process that runs, or starts one.
func (k *Keeper) startNetwork(ctx context.Context) (*networkProcess, error) {
	n := &networkProcess{k: k}
	k.network = n
	path := filepath.Join(k.conf.RunDir, networkSocket)
	if c, err := dialNetwork(ctx, path); err == nil {
		if n.listener, err = n.takeUp(ctx, c); err != nil {
			c.Close()
			return nil, fmt.Errorf("take up the running one: %w", err)
		}
		n.client = c
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

func dialNetwork(ctx context.Context, path string) (*fdrpc.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return fdrpc.Dial(ctx, path, api.Protocol, api.Version, nil)
}

// takeUp gets back from a running network process what a new keeper lacks, and
// drops from it what is no more.
func (n *networkProcess) takeUp(ctx context.Context, c *fdrpc.Client) (*os.File, error) {
	for after, more := "", true; more; {
		var page api.Lives
		if _, err := c.Call(ctx, api.MethodList, api.List{After: after}, nil, &page); err != nil {
			return nil, err
		}
		for _, id := range page.Lives {
			after = id
			l := n.k.lives[id]
			if l == nil || isGone(l) {
				if _, err := c.Call(ctx, api.MethodUnplug, api.Ref{Life: id}, nil, nil); err != nil {
					return nil, err
				}
				continue
			}
			files, err := c.Call(ctx, api.MethodDescriptors, api.Ref{Life: id}, nil, nil)
			if err != nil {
				return nil, err
			}
			l.nic = files[0]
		}
		more = page.More
	}
	files, err := c.Call(ctx, api.MethodListener, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return files[0], nil
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
	cmd := exec.Command(n.k.conf.Network)
	cmd.ExtraFiles = []*os.File{n.listener}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	logf, err := os.OpenFile(filepath.Join(n.k.conf.RunDir, "network.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logf.Close()
	cmd.Stdout, cmd.Stderr = logf, logf
	if err := cmd.Start(); err != nil {
		return err
	}
	c, err := dialNetwork(ctx, filepath.Join(n.k.conf.RunDir, networkSocket))
	if err != nil {
		cmd.Process.Kill()
		werr := cmd.Wait()
		return fmt.Errorf("it does not answer: %w (%v; see %s)", err, werr, logf.Name())
	}
	n.mu.Lock()
	n.client, n.cmd = c, cmd
	n.mu.Unlock()
	n.k.mu.Lock()
	var ls []*life
	for _, l := range n.k.lives {
		if l.nic != nil && !isGone(l) {
			ls = append(ls, l)
		}
	}
	n.k.mu.Unlock()
	for _, l := range ls {
		if err := n.plug(l.rec.Life.Life, l.nic); err != nil {
			n.k.log.Error("a NIC could not be plugged again", "life", l.rec.Life.Life, "error", err)
		}
	}
	return nil
}

// supervise starts the process again whenever it has ended.
func (n *networkProcess) supervise() {
	for {
		n.mu.Lock()
		c, cmd := n.client, n.cmd
		n.mu.Unlock()
		<-c.Done()
		if cmd != nil {
			err := cmd.Wait()
			n.k.log.Warn("network process ended", "error", err)
		}
		n.mu.Lock()
		stop := n.stopping
		n.mu.Unlock()
		if stop {
			return
		}
		if err := n.spawn(context.Background()); err != nil {
			n.k.log.Error("network process cannot be started", "error", err)
			select {
			case <-time.After(time.Second): // it may be a passing want of memory
			case <-n.k.stop:
				return
			}
		}
	}
}

func (n *networkProcess) call(method string, in any, files []*os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.mu.Lock()
	c := n.client
	n.mu.Unlock()
	_, err := c.Call(ctx, method, in, files, nil)
	return err
}

// plug hands a NIC over. When the process dies under the call, the next one gets
// it in spawn, so what counts is that the life has its duplicate.
func (n *networkProcess) plug(id string, nic *os.File) error {
	return n.call(api.MethodPlug, api.Ref{Life: id}, []*os.File{nic})
}

// unplug cuts a life off. A process that is gone has cut it off already.
func (n *networkProcess) unplug(id string) {
	if err := n.call(api.MethodUnplug, api.Ref{Life: id}, nil); err != nil && fdrpc.Code(err) != api.CodeNoLife && !errors.Is(err, fdrpc.ErrClosed) {
		n.k.log.Warn("unplug", "life", id, "error", err)
	}
}

// release lets go of the process and leaves it running.
func (n *networkProcess) release() {
	n.mu.Lock()
	n.stopping = true
	c, cmd := n.client, n.cmd
	n.cmd = nil
	n.mu.Unlock()
	if cmd != nil {
		cmd.Process.Release()
	}
	c.Close()
	n.listener.Close()
}

// end stops the process.
func (n *networkProcess) end() error {
	n.mu.Lock()
	n.stopping = true
	c := n.client
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := c.Call(ctx, api.MethodShutdown, nil, nil, nil)
	if errors.Is(err, fdrpc.ErrClosed) {
		err = nil // it was quicker than its answer
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		return errors.Join(err, errors.New("the network process does not end"))
	}
	n.wg.Wait()
	return err
}

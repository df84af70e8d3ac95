package gvisor

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

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// keeper is the connection to the keeper. It is made again when it breaks; a
// keeper that has died is started again and has taken up all lives when it answers.
type keeper struct {
	conf Config
	info keeperapi.Info
	died func(keeperapi.Life)

	mu     sync.Mutex // guards the following
	rpc    *fdrpc.Client
	closed bool
}

// openKeeper connects to the keeper. One that executes an older build than the one
// that is installed now is replaced; its lives run on.
func openKeeper(ctx context.Context, conf Config, died func(keeperapi.Life)) (*keeper, error) {
	k := &keeper{conf: conf, died: died}
	var current uint64
	var installed string
	if os.Geteuid() == 0 {
		sentry, err := install(ctx, conf)
		if err != nil {
			return nil, err
		}
		installed = filepath.Base(filepath.Dir(sentry))
		if current, err = inode(sentry); err != nil {
			return nil, err
		}
	}
	if err := k.hello(ctx); err != nil {
		return nil, err
	}
	stay := false
	if current != 0 && k.info.Engine != installed {
		// Another version keeps what it runs: its images are not ours.
		lives, err := k.lives(ctx)
		if err != nil {
			k.close()
			return nil, err
		}
		stay = len(lives) > 0
	}
	if current != 0 && k.info.Inode != current && !stay {
		if err := k.call(ctx, keeperapi.MethodLeave, nil, nil, nil); err != nil && !errors.Is(err, cube.ErrUnavailable) {
			k.close()
			return nil, fmt.Errorf("replace the keeper: %w", err)
		}
		<-k.rpc.Done()
		if err := k.hello(ctx); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// hello asks the keeper who it is.
func (k *keeper) hello(ctx context.Context) error {
	rpc, err := k.connection(ctx)
	if err != nil {
		return err
	}
	if _, err := rpc.Call(ctx, keeperapi.MethodInfo, nil, nil, &k.info); err != nil {
		k.close()
		return err
	}
	return nil
}

func inode(path string) (uint64, error) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	return st.Ino, err
}

func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.rpc == nil {
		return nil
	}
	return k.rpc.Close()
}

// connection returns a connection that works.
func (k *keeper) connection(ctx context.Context) (*fdrpc.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, fmt.Errorf("engine is closed: %w", cube.ErrUnavailable)
	}
	if k.rpc != nil {
		select {
		case <-k.rpc.Done():
		default:
			return k.rpc, nil
		}
	}
	path := filepath.Join(k.conf.RunDir, "keeper.sock")
	rpc, err := fdrpc.Dial(ctx, path, keeperapi.Protocol, keeperapi.Version, k.note)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		if err := k.start(ctx); err != nil {
			return nil, fmt.Errorf("start the keeper: %w", err)
		}
		rpc, err = fdrpc.Dial(ctx, path, keeperapi.Protocol, keeperapi.Version, k.note)
	}
	if err != nil {
		return nil, fmt.Errorf("keeper at %s: %w: %w", path, cube.ErrUnavailable, err)
	}
	k.rpc = rpc
	return rpc, nil
}

func (k *keeper) note(method string, body json.RawMessage) {
	var l keeperapi.Life
	if method == keeperapi.NoteDied && json.Unmarshal(body, &l) == nil {
		k.died(l)
	}
}

// requestTime bounds a request that changes something.
const requestTime = time.Minute

// call does one request. Where the connection was found broken before anything
// was sent, it is made again.
//
// A request that changes something is not given up when ctx ends: the keeper
// carries it out all the same, and whoever undoes it must know that. What has not
// been sent by then is not sent.
func (k *keeper) call(ctx context.Context, method string, in any, files []*os.File, out any) error {
	for {
		rpc, err := k.connection(ctx)
		if err != nil {
			return err
		}
		err = k.callOn(ctx, rpc, method, in, files, out)
		if fdrpc.Code(err) != keeperapi.CodeLeaving {
			return err
		}
		// It has not begun; the next keeper will do it.
		select {
		case <-rpc.Done():
		case <-ctx.Done():
			return err
		}
	}
}

func (k *keeper) callOn(ctx context.Context, rpc *fdrpc.Client, method string, in any, files []*os.File, out any) (err error) {
	switch method {
	case keeperapi.MethodInfo, keeperapi.MethodList, keeperapi.MethodUsage, keeperapi.MethodWaitRestore:
		_, err = rpc.Call(ctx, method, in, files, out)
		return explain(err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	if _, err = rpc.Call(bounded, method, in, files, out); bounded.Err() != nil {
		return fmt.Errorf("the keeper has not answered within %v: %w: %w", requestTime, cube.ErrUnavailable, err)
	}
	return explain(err)
}

// lives lists all of them.
func (k *keeper) lives(ctx context.Context) ([]keeperapi.Life, error) {
	var all []keeperapi.Life
	for q := (keeperapi.List{}); ; {
		var page keeperapi.Lives
		if err := k.call(ctx, keeperapi.MethodList, q, nil, &page); err != nil {
			return nil, fmt.Errorf("list lives: %w", err)
		}
		all = append(all, page.Lives...)
		if !page.More {
			return all, nil
		}
		q.After = page.Lives[len(page.Lives)-1].Life
	}
}

// start installs and starts a keeper, and returns when it listens. Two engines
// that find none start one.
func (k *keeper) start(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("no keeper runs at %s and only root can start one; run this as root, or start %s first: %w",
			k.conf.RunDir, filepath.Join(k.conf.BinDir, "cube-sentry"), cube.ErrUnavailable)
	}
	if err := mkdirOpen(k.conf.RunDir); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(k.conf.RunDir, "keeper.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if c, err := fdrpc.Dial(ctx, filepath.Join(k.conf.RunDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil); err == nil {
		return c.Close() // somebody was quicker
	}
	sentry, err := install(ctx, k.conf)
	if err != nil {
		return err
	}
	// Whoever asked may have little time; a keeper that takes up many lives needs more.
	launching, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	return launch(launching, k.conf, sentry)
}

// launch executes the keeper, detached from us, and returns when it answers.
func launch(ctx context.Context, conf Config, sentry string) error {
	logPath := filepath.Join(conf.RunDir, "keeper.log")
	errs, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer errs.Close()
	cmd := exec.Command(sentry, "keeper", "-run", conf.RunDir, "-cgroup", "cube/"+node(conf.RunDir),
		"-network", filepath.Join(filepath.Dir(sentry), "cube-network"))
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = errs, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // also reaps it if it dies before us
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if c, err := fdrpc.Dial(ctx, filepath.Join(conf.RunDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return fmt.Errorf("%s ended at once: %v: %s", sentry, err, lastLine(logPath))
		case <-deadline:
			return fmt.Errorf("%s does not listen after 30 s; see %s", sentry, logPath)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

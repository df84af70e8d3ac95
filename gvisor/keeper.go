package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/network"
)

// keeper is one keeper as the engine sees it: the connection to it, and to the
// cube-network that it has. The connection is made again when it breaks; a keeper
// that has died is started again and has taken up all lives when it answers.
type keeper struct {
	place place
	info  keeperapi.Info  // of the keeper that was there first
	net   *network.Client // dials into its lives
	died  func(keeperapi.Life)

	// Guarded by the mutex of keepers: verbs that use it, and whether it is sent off.
	users int

	mu     sync.Mutex // guards the following
	rpc    *fdrpc.Client
	ending bool // it is being shut down and must not be started again
	closed bool
}

// version is that of the sentries which it starts.
func (k *keeper) version() string { return k.info.Engine }

// connect reaches the keeper of a place, starting it where none runs.
func connect(ctx context.Context, p place, died func(keeperapi.Life)) (*keeper, error) {
	k := &keeper{place: p, died: died}
	if err := k.hello(ctx); err != nil {
		return nil, errors.Join(err, k.close())
	}
	k.net = network.NewClient(k.info.Network)
	return k, nil
}

// hello asks the keeper who it is.
func (k *keeper) hello(ctx context.Context) error {
	rpc, err := k.connection(ctx)
	if err != nil {
		return err
	}
	_, err = rpc.Call(ctx, keeperapi.MethodInfo, nil, nil, &k.info)
	return err
}

// leave has the keeper end and another take its place; its lives run on.
func (k *keeper) leave(ctx context.Context) error {
	if err := k.call(ctx, keeperapi.MethodLeave, nil, nil, nil); err != nil && !errors.Is(err, cube.ErrUnavailable) {
		return fmt.Errorf("replace the keeper: %w", err)
	}
	<-k.rpc.Done()
	return nil
}

func inode(path string) (uint64, error) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	return st.Ino, err
}

// close lets go of the keeper, which goes on.
func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	var errs []error
	if k.net != nil {
		errs = append(errs, k.net.Close())
	}
	if k.rpc != nil {
		errs = append(errs, k.rpc.Close())
	}
	return errors.Join(errs...)
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
	if k.ending {
		return nil, fmt.Errorf("the keeper at %s has been shut down: %w", k.place.dir, cube.ErrUnavailable)
	}
	rpc, err := k.place.dial(ctx, k.note)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		if err := k.place.start(ctx); err != nil {
			return nil, fmt.Errorf("start the keeper: %w", err)
		}
		rpc, err = k.place.dial(ctx, k.note)
	}
	if err != nil {
		return nil, fmt.Errorf("keeper at %s: %w: %w", k.place.dir, cube.ErrUnavailable, err)
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
	case keeperapi.MethodFiles: // ends when its reader goes
		_, err = rpc.Call(context.WithoutCancel(ctx), method, in, files, out)
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
			return nil, fmt.Errorf("list the lives of the keeper at %s: %w", k.place.dir, err)
		}
		all = append(all, page.Lives...)
		if !page.More {
			return all, nil
		}
		q.After = page.Lives[len(page.Lives)-1].Life
	}
}

// shutdown ends the keeper, its cube-network and every life that it has, and
// returns when its process has let go of its place.
func (k *keeper) shutdown(ctx context.Context) error {
	if _, err := k.connection(ctx); err != nil { // starts one for the lives that are left
		return err
	}
	k.setEnding(true)
	if err := k.call(ctx, keeperapi.MethodShutdown, nil, nil, nil); err != nil {
		k.setEnding(false)
		return err
	}
	err := k.place.vacated(ctx)
	return errors.Join(err, k.close(), k.place.remove())
}

func (k *keeper) setEnding(yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ending = yes
}

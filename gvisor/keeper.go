package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

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

	dialing chan struct{} // held by whoever makes the connection

	mu     sync.Mutex // guards the following
	rpc    *fdrpc.Client
	ending bool // it is being shut down and must not be started again
	closed bool
}

// version is that of the sentries which it starts.
func (k *keeper) version() string { return k.info.Engine }

// connect reaches the keeper of a place, starting it where none runs.
func connect(ctx context.Context, p place, died func(keeperapi.Life)) (*keeper, error) {
	k := &keeper{place: p, died: died, dialing: make(chan struct{}, 1)}
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
	return k.callOn(ctx, rpc, keeperapi.MethodInfo, nil, nil, &k.info)
}

// leave has the keeper end and another take its place; its lives run on.
func (k *keeper) leave(ctx context.Context) error {
	rpc, err := k.connection(ctx)
	if err != nil {
		return fmt.Errorf("replace the keeper: %w", err)
	}
	if err := k.callOn(ctx, rpc, keeperapi.MethodLeave, nil, nil, nil); err != nil && !errors.Is(err, cube.ErrUnavailable) {
		return fmt.Errorf("replace the keeper: %w", err)
	}
	select {
	case <-rpc.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the keeper at %s, process %d, does not leave: %w", k.place.dir, k.place.pid(), ctx.Err())
	}
}

func inode(path string) (uint64, error) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	return st.Ino, err
}

// close lets go of the keeper, which goes on.
func (k *keeper) close() error {
	k.mu.Lock()
	k.closed = true
	rpc := k.rpc
	k.mu.Unlock()
	var errs []error
	if k.net != nil {
		errs = append(errs, k.net.Close())
	}
	if rpc != nil {
		errs = append(errs, rpc.Close())
	}
	return errors.Join(errs...)
}

// connection returns a connection that works. Who waits for another to make it waits
// no longer than ctx.
func (k *keeper) connection(ctx context.Context) (*fdrpc.Client, error) {
	if rpc, err := k.connected(); rpc != nil || err != nil {
		return rpc, err
	}
	select {
	case k.dialing <- struct{}{}:
		defer func() { <-k.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("keeper at %s: %w: %w", k.place.dir, cube.ErrUnavailable, ctx.Err())
	}
	if rpc, err := k.connected(); rpc != nil || err != nil {
		return rpc, err
	}
	rpc, err := k.dial(ctx)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	closed := k.closed
	if !closed {
		k.rpc = rpc
	}
	k.mu.Unlock()
	if closed {
		return nil, errors.Join(errClosed, rpc.Close())
	}
	return rpc, nil
}

var errClosed = fmt.Errorf("engine is closed: %w", cube.ErrUnavailable)

// connected returns the connection that there is, if it works.
func (k *keeper) connected() (*fdrpc.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, errClosed
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
	return nil, nil
}

// dial connects to the keeper of our place, starting it where none runs.
func (k *keeper) dial(ctx context.Context) (*fdrpc.Client, error) {
	rpc, err := k.place.dial(ctx, k.note)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		if err := k.place.start(ctx); err != nil {
			return nil, fmt.Errorf("start the keeper: %w", err)
		}
		// It is there now, whoever has asked for it goes away.
		rpc, err = k.place.dial(context.WithoutCancel(ctx), k.note)
	}
	if err != nil {
		return nil, fmt.Errorf("keeper at %s: %w: %w", k.place.dir, cube.ErrUnavailable, err)
	}
	return rpc, nil
}

func (k *keeper) note(method string, body json.RawMessage) {
	var l keeperapi.Life
	if method == keeperapi.NoteDied && json.Unmarshal(body, &l) == nil {
		k.died(l)
	}
}

// shutdown ends the keeper, its cube-network and every life that it has, and
// returns when its process has let go of its place.
func (k *keeper) shutdown(ctx context.Context) error {
	if _, err := k.connection(ctx); err != nil { // starts one for the lives that are left
		return err
	}
	k.setEnding(true)
	err := k.call(ctx, keeperapi.MethodShutdown, nil, nil, nil)
	if err == nil {
		err = k.place.vacated(ctx)
	}
	if err != nil {
		k.setEnding(false) // it, or the next in its place, can be used and ended again
		return err
	}
	return errors.Join(k.close(), k.place.remove())
}

func (k *keeper) setEnding(yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ending = yes
}

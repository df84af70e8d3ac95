package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

const (
	// answerTime bounds what a keeper says of itself, without asking a sentry.
	answerTime = 10 * time.Second
	// requestTime bounds a request that changes something.
	requestTime = time.Minute
	// stillTime is for how long the files of a save may not grow.
	stillTime = time.Minute
)

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

func (k *keeper) callOn(ctx context.Context, rpc *fdrpc.Client, method string, in any, files []*os.File, out any) error {
	bounded, cancel, err := bound(ctx, method, files)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = rpc.Call(bounded, method, in, files, out)
	var late *lateError
	if err != nil && errors.As(context.Cause(bounded), &late) {
		return fmt.Errorf("%s: the keeper at %s, process %d, %w: %w", method, k.place.dir, k.place.pid(), late, cube.ErrUnavailable)
	}
	return explain(err)
}

// lateError is why a request was given up.
type lateError struct{ what string }

func (e *lateError) Error() string { return e.what }

func notWithin(d time.Duration) error {
	return &lateError{fmt.Sprintf("has not answered within %v", d)}
}

// bound gives the context of a request: that of whoever asks, or one that outlives it.
func bound(ctx context.Context, method string, files []*os.File) (context.Context, context.CancelFunc, error) {
	none := func() {}
	switch method {
	case keeperapi.MethodInfo, keeperapi.MethodList:
		ctx, cancel := context.WithTimeoutCause(ctx, answerTime, notWithin(answerTime))
		return ctx, cancel, nil
	case keeperapi.MethodUsage, keeperapi.MethodWaitRestore, keeperapi.MethodEarlyWrites:
		return ctx, none, nil
	case keeperapi.MethodFiles: // ends when its reader goes
		return context.WithoutCancel(ctx), none, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", method, err)
	}
	ctx = context.WithoutCancel(ctx)
	if method == keeperapi.MethodSave { // lasts as long as there is something to write
		ctx, cancel := whileGrowing(ctx, files, stillTime)
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTime, notWithin(requestTime))
	return ctx, cancel, nil
}

// whileGrowing gives a context that ends when none of the files has grown for a while.
func whileGrowing(ctx context.Context, files []*os.File, still time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(still / 20)
		defer tick.Stop()
		size, since := written(files), time.Now()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			switch now := written(files); {
			case now != size:
				size, since = now, time.Now()
			case time.Since(since) >= still:
				cancel(&lateError{fmt.Sprintf("has written nothing for %v", still)})
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-stopped }
}

// written is how long the files are together, in bytes.
func written(files []*os.File) int64 {
	var total int64
	for _, f := range files {
		if fi, err := f.Stat(); err == nil {
			total += fi.Size()
		}
	}
	return total
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

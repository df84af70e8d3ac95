package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
)

// runPatience is how long a program's sandbox may not answer while its output is read on.
const runPatience = 15 * time.Second

// mayGoOn reports whether a stream that has failed so can be taken up again.
func (r *running) mayGoOn(err error) bool {
	if !r.c.GoOn || r.pid == 0 || r.at.Lives == "" || r.c.Stdin != nil && !r.fed.Load() {
		return false
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeCanceled: // the last is a reset
		return true
	}
	return false
}

// goOn reads on to the program's end after its stream has failed. The program is ended only
// where its caller wants no more of it: one that cannot be reached goes on, and after a
// rollback its number may be that of another.
func (r *running) goOn(ctx context.Context, failed error) (Exit, error) {
	for p, err := range r.g.Follow(ctx, r.pid, r.at, Following{Window: -1, Patience: r.g.patience}) {
		if err != nil {
			return Exit{}, r.lostSight(ctx, failed, err)
		}
		exit, done, err := r.put(p)
		if err != nil {
			r.kill(ctx)
			return Exit{}, err
		}
		if done {
			return exit, nil
		}
	}
	return Exit{}, failed
}

// lostSight says what becomes of a program of which nothing more can be read, and why.
func (r *running) lostSight(ctx context.Context, failed, err error) error {
	var back *WentBackError
	switch {
	case ctx.Err() != nil:
		r.kill(ctx)
		return err
	case errors.Is(err, errNoAnswer) && stopped(failed):
		return r.leftAlone()
	case errors.Is(err, errNoAnswer): // it also wraps what was said last
	case errors.As(err, &back), errors.Is(err, cube.ErrNotFound), errors.Is(err, cube.ErrDead):
		return err
	}
	return fmt.Errorf("%w; the program may go on as process %d", err, r.pid)
}

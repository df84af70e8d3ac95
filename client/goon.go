package client

import (
	"context"
	"errors"
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

// goOn reads on to the program's end after its stream has failed. The program is ended
// where it would go on alone, unless the server was stopped.
func (r *running) goOn(ctx context.Context, failed error) (Exit, error) {
	for p, err := range r.g.Follow(ctx, r.pid, r.at, Following{Window: -1, Patience: runPatience}) {
		exit, done := Exit{}, false
		if err == nil {
			exit, done, err = r.put(p)
		}
		switch {
		case err == nil && done:
			return exit, nil
		case err == nil:
		case ctx.Err() == nil && stopped(failed) && (errors.Is(err, ErrUnreachable) || errors.Is(err, cube.ErrUnavailable)):
			return Exit{}, r.leftAlone()
		default:
			r.kill(ctx)
			return Exit{}, err
		}
	}
	return Exit{}, failed
}

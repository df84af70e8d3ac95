package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
)

// Time between two tries to reach a sandbox.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// How often a silent stream says that it is there: proxies between us end what is silent.
const (
	keepaliveHeader = "Keepalive-Ping-Interval"
	keepalive       = "50" // seconds
)

// readFrom makes a request one that begins at a position.
func readFrom(h http.Header, at Position, window int64) {
	h.Set(keepaliveHeader, keepalive)
	h.Set(agentapi.OutputFrom, "tail")
	if at.Offset != Tail {
		h.Set(agentapi.OutputFrom, strconv.FormatInt(at.Offset, 10))
	}
	if at.Reader != "" {
		h.Set(agentapi.OutputReader, at.Reader)
	}
	if at.Lives != "" {
		h.Set(agentapi.OutputLives, at.Lives)
	}
	if window > 0 {
		h.Set(agentapi.OutputWindow, strconv.FormatInt(window, 10))
	}
}

func selector(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// wait returns when the next try is due, or why there is none: the program or the sandbox
// is no more, or the patience is over.
func (f *follower) wait(ctx context.Context, failed error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if connect.IsWireError(failed) {
		switch connect.CodeOf(failed) {
		case connect.CodeOutOfRange:
			return f.wentBack(failed)
		case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeCanceled:
		default:
			return failed
		}
	}
	if errors.Is(failed, errOldAgent) || refused(failed) {
		return failed
	}
	if err := f.there(ctx, failed); err != nil {
		return err
	}
	if f.pause = min(2*f.pause, maxPause); f.pause == 0 {
		f.pause = firstPause
	}
	t := time.NewTimer(f.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refused reports whether the data plane says that it will not do better the next time.
func refused(err error) bool {
	var said *Error
	return errors.As(err, &said) && said.Status < 500 && said.Status != http.StatusConflict && said.Status != http.StatusTooManyRequests
}

// errNoAnswer says that the patience is over.
var errNoAnswer = errors.New("no answer")

// there asks whether the sandbox is there, and whether the patience is over. While it is
// paused it is not.
func (f *follower) there(ctx context.Context, failed error) error {
	now := time.Now()
	if f.answered.IsZero() {
		f.answered = now
	}
	b, err := f.g.c.Get(ctx, f.g.id)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, cube.ErrNotFound):
		return fmt.Errorf("the sandbox has ended: %w", cube.ErrDead)
	case err == nil && b.State != "running":
		f.answered = now
	case now.Sub(f.answered) > f.o.Patience:
		return fmt.Errorf("%w for %v: %w", errNoAnswer, f.o.Patience, meaning(failed))
	}
	return nil
}

package spawn

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// turn waits until no other request to init is on its way. The turn ends when the token is
// taken from starting.
func (i *Init) turn(ctx context.Context) error {
	select {
	case i.starting <- struct{}{}:
	case <-i.done:
		return ErrInitDied
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-i.answers: // one that nobody asked for
	default:
	}
	return nil
}

// ask sends init a request and waits for its answer until ctx ends. The turn lasts until
// init has answered or is dead, also when nobody waits for that any more: its next answer
// must not be taken for one to another request.
func (i *Init) ask(ctx context.Context, frame, rights []byte) (answer, error) {
	if err := i.turn(ctx); err != nil {
		return answer{}, err
	}
	answered := i.hurry()
	rest, err := i.begin(ctx, frame, rights)
	if err != nil {
		answered()
		<-i.starting
		return answer{}, err
	}
	type result struct {
		answer
		err error
	}
	got := make(chan result)
	go func() { // ends with init at the latest
		a, err := i.collect(rest)
		answered()
		<-i.starting
		select {
		case got <- result{a, err}:
		case <-ctx.Done():
			if a.child != nil {
				i.Signal(a.child.PID, unix.SIGKILL)
			}
		}
	}()
	select {
	case r := <-got:
		return r.answer, r.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// collect sends the rest of a request and takes the answer.
func (i *Init) collect(rest []byte) (answer, error) {
	if err := i.finish(rest); err != nil {
		return answer{}, err
	}
	select {
	case a := <-i.answers:
		return a, nil
	case <-i.done:
		return answer{}, ErrInitDied
	}
}

// begin sends the beginning of a frame, with the descriptors, and returns what is left of it
// for finish. When ctx ends before init has room for any of it nothing is sent, and the
// caller may close the descriptors.
func (i *Init) begin(ctx context.Context, frame, rights []byte) (rest []byte, err error) {
	select {
	case i.writing <- struct{}{}:
	case <-i.done:
		return nil, ErrInitDied
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		i.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	n, _, err := i.conn.WriteMsgUnix(frame, rights, nil)
	if !stop() {
		<-interrupted
		i.conn.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return frame[n:], nil
	}
	<-i.writing
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, ctx.Err()
	}
	i.Kill()
	return nil, ErrInitDied
}

// finish sends what begin has left. When init does not take it, hurry's patience ends it.
func (i *Init) finish(rest []byte) error {
	defer func() { <-i.writing }()
	if len(rest) == 0 {
		return nil
	}
	if _, err := i.conn.Write(rest); err != nil {
		i.Kill()
		return ErrInitDied
	}
	return nil
}

package process

import (
	"context"
	"errors"
	"time"

	"cubesandbox/guest/spawn"

	"golang.org/x/sys/unix"
)

// giveUp is how long Run waits for the end of a process that it has killed.
const giveUp = time.Second

// Run runs a program on the agent's own account and returns the first bytes of what
// it says, max at most, and how it ended. It is in no list, and stdin is empty. The
// environment of the sandbox is below that of q; its control group is set here.
//
// When ctx ends the program is killed with all its descendants and the error is
// ctx's. When it ends by itself, what it has left behind goes on, and what that
// writes is read and forgotten.
func (t *Table) Run(ctx context.Context, q spawn.Request, max int) (output []byte, status unix.WaitStatus, err error) {
	starter, err := t.starter(ctx)
	if err != nil {
		return nil, 0, err
	}
	null, err := devNull()
	if err != nil {
		return nil, 0, err
	}
	theirs, ours, err := pipe(false)
	if err != nil {
		return nil, 0, err
	}
	env := make([]string, 0, len(q.Env)+8)
	for k, v := range t.Env() {
		env = append(env, k+"="+v)
	}
	q.Env = append(env, q.Env...)
	if q.Cgroup, _, err = t.newGroup(); err != nil {
		unix.Close(theirs)
		ours.Close()
		return nil, 0, err
	}
	child, err := starter.Spawn(ctx, q, [3]int{null, theirs, theirs})
	unix.Close(theirs)
	if err != nil {
		ours.Close()
		t.discard(q.Cgroup)
		return nil, 0, err
	}
	t.count(1)
	defer t.count(-1)
	defer t.leave(q.Cgroup)
	said, drained := first{max: max}, make(chan struct{}, 1)
	go source{ours, stdout}.pump(said.add, drained)
	select {
	case <-child.Done():
	case <-ctx.Done():
		err = errors.Join(ctx.Err(), t.groups.Kill(q.Cgroup))
		select {
		case <-child.Done():
		case <-time.After(giveUp): // whoever speaks for init says nothing of it
			ours.SetReadDeadline(time.Now())
			<-drained
			return said.data, 0, err
		}
	}
	ours.SetReadDeadline(time.Now().Add(linger))
	<-drained
	return said.data, child.Status(), err
}

// count changes how many processes run.
func (t *Table) count(by int) {
	t.mu.Lock()
	t.running += by
	t.mu.Unlock()
	t.changed()
}

// first are the first bytes of an output, max at most.
type first struct {
	max  int
	data []byte
}

func (f *first) add(_ stream, data []byte) {
	f.data = append(f.data, data[:min(len(data), f.max-len(f.data))]...)
}

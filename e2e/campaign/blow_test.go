package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/gvisor/keeperapi"
)

// blow is what happens to processes that are not the server.
type blow struct {
	who string
	// stop: SIGSTOP first, for stopTime, and SIGCONT after it unless kill.
	stop, kill bool
}

func (b blow) String() string {
	switch {
	case !b.stop:
		return "kill " + b.who
	case !b.kill:
		return "stop and continue " + b.who
	}
	return "stop and kill " + b.who
}

// stopTime is for how long a process is stopped.
const stopTime = 300 * time.Millisecond

// The processes. There is no other: the agent and all that users run are inside of a
// sentry, which is all that the host knows of them, and stop and end with it.
const (
	sentries = "the sentries"
	keeper   = "the keeper"
	network  = "the network"
	both     = "keeper and network"
)

// blows are all that there are.
func blows() (all []blow) {
	for _, who := range []string{sentries, keeper, network, both} {
		all = append(all, blow{who, false, true}, blow{who, true, false}, blow{who, true, true})
	}
	return all
}

// targets finds the processes that are struck, and the sandboxes that they are: of the
// sentries all but that of the sandbox which has nothing to do with it.
func (b blow) targets(ctx context.Context) (pids []int, of []cube.SandboxID, err error) {
	if b.who == keeper || b.who == both {
		pid, err := s.Keeper(ctx)
		if err != nil {
			return nil, nil, err
		}
		pids = append(pids, pid)
	}
	if b.who == network || b.who == both {
		pid, err := s.Network(ctx)
		if err != nil {
			return nil, nil, err
		}
		pids = append(pids, pid)
	}
	if b.who != sentries {
		return pids, nil, nil
	}
	lives, err := s.Lives(ctx)
	for _, l := range lives {
		if l.Labels.Sandbox != kept.running.ID && l.State != keeperapi.StateDead {
			pids, of = append(pids, l.PID), append(of, l.Labels.Sandbox)
		}
	}
	return pids, of, err
}

// strike does it to processes. Those that have ended by themselves are let be.
func (b blow) strike(pids []int) error {
	signal := func(sig syscall.Signal) error {
		var errs []error
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	if b.stop {
		if err := signal(syscall.SIGSTOP); err != nil {
			return err
		}
		<-time.After(stopTime) // it is the time itself that is tested
	}
	if b.kill {
		return signal(syscall.SIGKILL)
	}
	return signal(syscall.SIGCONT)
}

// blowTime is for how long the server is held at a boundary: enough to strike there.
const blowTime = 200 * time.Millisecond

// hit does a verb, holds the server at a boundary, and strikes other processes there.
func hit(ctx context.Context, v verb, at boundary, b blow) row {
	began := time.Now()
	r := row{Verb: v.name, At: at.String(), Action: b.String()}
	u := &subject{tag: tag()}
	err := v.prepare(ctx, u)
	var dead []cube.SandboxID
	if err == nil {
		dead, err = r.hit(ctx, v, u, at, b)
	}
	if err == nil {
		r.Happened, err = aftermath(ctx, v, u, dead)
	}
	r.conclude(ctx, u, err)
	r.MS = ms(began)
	return r
}

func (r *row) hit(ctx context.Context, v verb, u *subject, at boundary, b blow) (dead []cube.SandboxID, err error) {
	tr, err := restart(ctx, at.armed(fmt.Sprintf("sleep(%v)", blowTime)))
	defer tr.remove()
	if err != nil {
		return nil, err
	}
	before := len(tr.lines())
	done := make(chan error, 1)
	go func() { done <- v.do(ctx, u) }()
	reached := func() bool { return slices.Contains(tr.since(before), at) }
	// It may be done without having come by there.
	err = lab.Until(deathTime, "the server is at the boundary", func() error {
		if reached() || len(done) > 0 {
			return nil
		}
		return errors.New("it is not")
	})
	if r.Reached = reached(); err == nil && r.Reached {
		var pids []int
		if pids, dead, err = b.targets(ctx); err == nil {
			err = b.strike(pids)
		}
		if !b.kill {
			dead = nil
		}
	}
	select {
	case verr := <-done:
		u.answered, r.Answered = verr == nil, verr == nil
	case <-time.After(time.Minute):
		return dead, errors.Join(err, errors.New("the verb does not end"))
	}
	return dead, err
}

// aftermath finds out what has become of the subject. What died is reported, with the
// reason, and comes back if it was ever saved; all else is as after any verb.
func aftermath(ctx context.Context, v verb, u *subject, dead []cube.SandboxID) (happened bool, err error) {
	if err := reachable(ctx); err != nil {
		return false, err
	}
	lost := false
	for _, id := range dead {
		lost = lost || mourned(ctx, id)
	}
	if !slices.Contains(dead, u.box.ID) || !mourned(ctx, u.box.ID) {
		happened, err = v.after(ctx, u)
		if lost && errors.Is(err, cube.ErrNotFound) {
			err = nil // what was made is named, and has died
		}
		return happened, err
	}
	e, err := endedBox(ctx, u.box.ID)
	if err != nil {
		return false, err
	}
	snaps, err := snapshotsOf(ctx, u.box.ID)
	switch {
	case err != nil:
		return false, err
	case e.Reason == "" || e.Recoverable != (len(snaps) > 0):
		return false, fmt.Errorf("it has died, has %d snapshots, and is listed as %+v", len(snaps), e)
	case len(snaps) == 0:
		return false, nil
	}
	if _, err := recoverBox(ctx, u.box.ID); err != nil {
		return false, err
	}
	return false, u.is(ctx, u.box.ID, older)
}

// mourned waits until the service knows what has become of a sandbox whose kernel was
// killed, and reports whether it is no more. It may live: of another life.
func mourned(ctx context.Context, id cube.SandboxID) bool {
	gone := false
	lab.Until(3*time.Second, "it is known to be dead", func() error {
		b, err := users.Get(ctx, id)
		gone = errors.Is(err, cube.ErrNotFound)
		if gone || err == nil && b.State == "paused" {
			return nil
		}
		_, err = look(ctx, id)
		return err
	})
	return gone
}

// reachable waits until what has nothing to do with it answers again: a network that
// was killed is started again, and takes a moment.
func reachable(ctx context.Context) error {
	return lab.Until(20*time.Second, "others answer again", func() error {
		_, err := look(ctx, kept.running.ID)
		return err
	})
}

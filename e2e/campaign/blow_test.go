package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// The processes.
const (
	sentries = "the sentries"
	agents   = "the agents" // in their sentries, as processes of these kernels
	keeper   = "the keeper"
	network  = "the network"
	both     = "keeper and network"
)

// blows are all that there are.
func blows() (all []blow) {
	for _, who := range []string{sentries, agents, keeper, network, both} {
		all = append(all, blow{who, false, true}, blow{who, true, false}, blow{who, true, true})
	}
	return all
}

// target takes signals.
type target func(syscall.Signal) error

// process is one of the host. One that has ended by itself takes every signal.
func process(pid int) target {
	return func(sig syscall.Signal) error {
		if err := syscall.Kill(pid, sig); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
}

// targets finds what is struck, and the sandboxes that it may cost: of sentries and
// agents all but that of the sandbox which has nothing to do with it.
func (b blow) targets(ctx context.Context) (all []target, of []cube.SandboxID, err error) {
	if b.who == keeper || b.who == both {
		pid, err := s.Keeper(ctx)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, process(pid))
	}
	if b.who == network || b.who == both {
		pid, err := s.Network(ctx)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, process(pid))
	}
	if b.who != sentries && b.who != agents {
		return all, nil, nil
	}
	lives, err := s.Lives(ctx)
	for _, l := range lives {
		if l.Labels.Sandbox == kept.running.ID || l.State == keeperapi.StateDead {
			continue
		}
		if b.who == agents {
			all = append(all, s.Agent(l))
		} else {
			all = append(all, process(l.PID))
		}
		of = append(of, l.Labels.Sandbox)
	}
	return all, of, err
}

// strike does it.
func (b blow) strike(all []target) error {
	signal := func(sig syscall.Signal) error {
		var errs []error
		for _, to := range all {
			errs = append(errs, to(sig))
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
	ctx = patiently(ctx)
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
		var all []target
		if all, dead, err = b.targets(ctx); err == nil {
			err = b.strike(all)
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
		lost = u.isGone(ctx, id) || lost
	}
	if u.box.ID == "" || !u.isGone(ctx, u.box.ID) || !slices.Contains(dead, u.box.ID) {
		happened, err = v.after(ctx, u)
		switch {
		case lost && errors.Is(err, cube.ErrNotFound):
			err = nil // what was made is named, and has died
		case len(dead) > 0 && err != nil && strings.Contains(err.Error(), "process 1 inside ended"):
			err = u.backFromFiles(ctx) // its agent was killed while it was frozen: that was saved, too
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

// backFromFiles resumes it without its memory.
func (u *subject) backFromFiles(ctx context.Context) error {
	if err := call(ctx, request{"POST", "/sandboxes/" + string(u.box.ID) + "/resume", "", map[string]bool{"memory": false}}, nil); err != nil {
		return err
	}
	return u.files(ctx, older)
}

// isGone waits until it is seen what has become of a sandbox, and reports whether it is
// no more: it may be paused, or answer, of another life perhaps.
func (u *subject) isGone(ctx context.Context, id cube.SandboxID) (gone bool) {
	lab.Until(20*time.Second, "its fate is known", func() error {
		b, err := users.Get(ctx, id)
		gone = errors.Is(err, cube.ErrNotFound)
		if gone || err == nil && b.State == "paused" {
			return nil
		}
		// This wait is patient itself.
		if _, err = look(context.WithValue(ctx, patience{}, nil), id); err != nil && id == u.box.ID {
			_, err = sh(ctx, u.box, "true") // after a boot from its files it has no witness
		}
		return err
	})
	return gone
}

// reachable waits until what has nothing to do with it answers again, and the keeper: what
// was killed is started again, and takes a moment.
func reachable(ctx context.Context) error {
	return lab.Until(20*time.Second, "others answer again", func() error {
		_, err := look(ctx, kept.running.ID)
		_, lerr := s.Lives(ctx)
		return errors.Join(err, lerr)
	})
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// again waits until the engine does its work again after a process of ours ended.
func again(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	err := lab.Until(10*time.Second, what, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return f(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKillOfASentryEndsThatSandboxAloneAndIsTold(t *testing.T) {
	l.Guard(t)
	victim, other := witness(t), witness(t)
	before, c, lost := l.Check(t, other), connect(t, other), connect(t, victim)
	events := l.Engine.Events(t.Context())
	noError(t, l.KillSentry(t.Context(), victim), "kill the sentry")
	ev := event(t, events, cube.EventDied, victim)
	if ev.Death == nil || ev.Death.Reason != cube.DeathSignal {
		t.Errorf("got %+v, want a death by signal", ev.Death)
	}
	lost.ends()
	if _, err := l.Run(t.Context(), victim, "/bin/true"); !errors.Is(err, cube.ErrDead) {
		t.Errorf("run in the dead one: got %v, want dead", err)
	}
	answersAsBefore(t, other, before, c)
	noError(t, l.Engine.Kill(t.Context(), victim), "forget it")
}

func TestKillOfTheKeeperLosesNothing(t *testing.T) {
	l.Guard(t)
	id, dead := witness(t), witness(t)
	img := save(t, id)
	before, c := l.Check(t, id), connect(t, id)
	pid, err := l.Keeper(t.Context())
	noError(t, err, "find the keeper")
	deadPID, err := l.Life(t.Context(), dead)
	noError(t, err, "find a sentry")
	noError(t, lab.KillHard(pid), "kill the keeper")
	noError(t, lab.KillHard(deadPID.PID), "kill a sentry while there is no keeper")
	answersAsBefore(t, id, before, c)

	again(t, "the keeper is back", func(ctx context.Context) error {
		got, err := l.Keeper(ctx)
		if err == nil && got == pid {
			err = errors.New("it is the old one")
		}
		if err != nil { // whoever asks the engine starts it
			_, uerr := l.Engine.Usage(ctx, id)
			err = errors.Join(err, uerr)
		}
		return err
	})
	again(t, "the death is noticed", func(ctx context.Context) error {
		s, err := l.Engine.Sandbox(ctx, dead)
		if err == nil && s.State != cube.StateDead {
			err = fmt.Errorf("it is %s", s.State)
		}
		return err
	})
	save(t, id)
	_, err = l.Engine.Rollback(t.Context(), id, img)
	noError(t, err, "rollback with the new keeper")
	runs(t, id, 2)
	if got := l.Check(t, id); got.Identity != before.Identity {
		t.Errorf("got %+v, want the life from before, %+v", got, before)
	}
}

func TestKillOfCubeNetworkLosesNoSandbox(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before, c := l.Check(t, id), connect(t, id)
	pid, err := l.Network(t.Context())
	noError(t, err, "find cube-network")
	noError(t, lab.KillHard(pid), "kill cube-network")
	c.ends()
	again(t, "the sandbox answers", func(ctx context.Context) error {
		_, err := lab.Get(ctx, l.Engine, id, "k")
		return err
	})
	if got := l.Check(t, id); got.Identity != before.Identity || got.Uses != before.Uses+1 {
		t.Errorf("got %+v, want the life from before, %+v", got, before)
	}
	runs(t, id, 1)
	save(t, id)
	connect(t, witness(t))
}

func TestKillOfKeeperAndCubeNetworkAtOnceLosesNoSandbox(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	before := l.Check(t, id)
	keeper, err := l.Keeper(t.Context())
	noError(t, err, "find the keeper")
	network, err := l.Network(t.Context())
	noError(t, err, "find cube-network")
	noError(t, lab.KillHard(keeper), "kill the keeper")
	noError(t, lab.KillHard(network), "kill cube-network")
	// Nobody holds a NIC of it any more. What comes next is a restore, which
	// brings another: the sandbox is saved and goes on, under its id.
	again(t, "the sandbox can be used", func(ctx context.Context) error {
		_, err := lab.Get(ctx, l.Engine, id, "k")
		return err
	})
	if got := l.Check(t, id); got.Identity != before.Identity {
		t.Errorf("got %+v, want the life from before, %+v", got, before)
	}
}

func TestKillOfTheUsersInitIsToldAndAnotherIsStarted(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	events := l.Engine.Events(t.Context())
	// The init of the users' namespace is their process 1, which gVisor lets root end.
	if _, err := l.Run(t.Context(), id, "/bin/sh", "-c", "kill -9 1; sleep 5"); err != nil {
		t.Logf("the command that ended its own init: %v", err)
	}
	event(t, events, cube.EventInitDied, id)
	again(t, "new processes start", func(ctx context.Context) error {
		_, err := l.Run(ctx, id, "/bin/true")
		return err
	})
	runs(t, id, 1)
}

func TestTheGuestsRootCannotEndTheSandboxWithSignals(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	for _, signal := range []string{"KILL", "TERM", "STOP", "SEGV", "HUP", "ABRT", "TRAP"} {
		for _, target := range []string{"1", "-1", "2"} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			l.Run(ctx, id, "/bin/sh", "-c", fmt.Sprintf("trap '' TERM HUP; kill -%s %s; sleep 0.2", signal, target))
			cancel()
			again(t, fmt.Sprintf("new processes start after kill -%s %s", signal, target), func(ctx context.Context) error {
				out, err := l.Run(ctx, id, "/bin/echo", "alive")
				if err == nil && string(out.Stdout) != "alive\n" {
					err = fmt.Errorf("got %q", out.Stdout)
				}
				return err
			})
		}
	}
	runs(t, id, 1)
}

func TestTheUsersInitComesBackWhateverRootHasDoneToItsMountPoint(t *testing.T) {
	for name, spoil := range map[string]string{
		"removed": "rmdir /boot",
		"a link":  "rmdir /boot && ln -s /proc /boot",
	} {
		t.Run(name, func(t *testing.T) {
			l.Guard(t)
			id := witness(t)
			sh(t, id, spoil)
			l.Run(t.Context(), id, "/bin/sh", "-c", "kill -9 1") // ends with its init
			again(t, "commands run", func(ctx context.Context) error {
				out, err := l.Run(ctx, id, "/bin/true")
				if err == nil && out.Exit != 0 {
					err = fmt.Errorf("exit status %d", out.Exit)
				}
				return err
			})
			if got := sh(t, id, "ls -d /proc/self/status"); got != "/proc/self/status" {
				t.Errorf("/proc: got %q", got)
			}
		})
	}
}

package lab

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/local"
)

// Life returns the keeper's view of a sandbox's current life.
func (l *Lab) Life(ctx context.Context, id cube.SandboxID) (keeperapi.Life, error) {
	h, err := local.LookAt(ctx, l.opt.RunDir)
	if err != nil {
		return keeperapi.Life{}, err
	}
	for _, life := range h.Lives {
		if life.Labels.Sandbox == id && life.Labels.Role == keeperapi.RoleCurrent {
			return life, nil
		}
	}
	return keeperapi.Life{}, fmt.Errorf("the keeper has no life of %s", id)
}

// PoolMembers counts the restored, frozen lives that nobody has claimed.
func (l *Lab) PoolMembers(ctx context.Context) (int, error) {
	h, err := local.LookAt(ctx, l.opt.RunDir)
	n := 0
	for _, life := range h.Lives {
		if life.Labels.Role == keeperapi.RolePool && life.Labels.Image != "" {
			n++
		}
	}
	return n, err
}

// KillSentry ends a sandbox's kernel from outside.
func (l *Lab) KillSentry(ctx context.Context, id cube.SandboxID) error {
	life, err := l.Life(ctx, id)
	if err != nil {
		return err
	}
	return syscall.Kill(life.PID, syscall.SIGKILL)
}

// Keeper and Network return the pids of the two processes.
func (l *Lab) Keeper(ctx context.Context) (int, error) {
	h, err := local.LookAt(ctx, l.opt.RunDir)
	return h.PID, err
}

// Network returns the pid of cube-network.
func (l *Lab) Network(ctx context.Context) (int, error) {
	h, err := local.LookAt(ctx, l.opt.RunDir)
	if err != nil {
		return 0, err
	}
	for _, pid := range h.PIDs {
		if pid != h.PID {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process serves %s", h.Info.Network)
}

// KillHard ends a process by SIGKILL and returns when it is no more.
func KillHard(pid int) error {
	p, err := os.FindProcess(pid) // holds a pidfd: it cannot become another process
	if err != nil {
		return err
	}
	defer p.Release()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return Until(10*time.Second, fmt.Sprintf("process %d ends", pid), func() error {
		if err := p.Signal(syscall.Signal(0)); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// Until asks again until cond returns nil; after the deadline it returns what
// cond said last.
func Until(deadline time.Duration, what string, cond func() error) error {
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return fmt.Errorf("%s: not within %v: %w", what, deadline, err)
		}
	}
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/local"
)

// SetEnv gives the servers that are started from now on these variables, KEY=VALUE,
// beside what the test has itself, and no others that were given before.
func (s *Server) SetEnv(env ...string) { s.env = env }

// PID is the server's.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// WaitEnd waits until the server has ended by itself, and returns the signal that did
// it, or 0.
func (s *Server) WaitEnd(ctx context.Context) (syscall.Signal, error) {
	select {
	case err := <-s.ended:
		s.ended <- err
		return endedBy(err), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the server is still there: %w", ctx.Err())
	}
}

// HasEnded reports whether the server is no more.
func (s *Server) HasEnded() bool {
	select {
	case err := <-s.ended:
		s.ended <- err
		return true
	default:
		return false
	}
}

func endedBy(end error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(end, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

// StateDir is where the lab's images and records are.
func (l *Lab) StateDir() string { return l.opt.StateDir }

// Root is the folder of go.mod, above a test's own.
func Root() string { return moduleRoot() }

// Lives are all that the keeper has, dead ones and members of pools included.
func (l *Lab) Lives(ctx context.Context) ([]keeperapi.Life, error) {
	h, err := local.LookAt(ctx, l.opt.RunDir)
	return h.Lives, err
}

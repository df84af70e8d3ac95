package gvisor

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/guest/agentclient"
	"cubesandbox/network"
)

// Ask implements cube.Engine.
func (e *Engine) Ask(ctx context.Context, id cube.SandboxID) error {
	s, err := e.find(id)
	if err != nil {
		return err
	}
	ended := s.ended.Load()
	l, info, _ := s.current()
	switch info.State {
	case cube.StateDead:
		return deadError(info)
	case cube.StateFrozen:
		return fmt.Errorf("ask the agent of %s: it is frozen: %w", id, cube.ErrConflict)
	}
	verdict := askAgent(ctx, l.control(), info.Generation)
	// What was asked may have been ended or stopped while it was: a save does that, too,
	// whose life is running all the time for everybody else.
	switch now, info, _ := s.current(); {
	case verdict == nil:
		return nil
	case info.State == cube.StateDead:
		return deadError(info)
	case now != l || info.State != cube.StateRunning || s.since(ended):
		return fmt.Errorf("ask the agent of %s: another verb was at work: %w", id, cube.ErrConflict)
	}
	return verdict
}

// maxReason bounds what an agent may say of why it is not well, in bytes.
const maxReason = 200

// askAgent asks the agent of a life once. What it says is taken for what a stranger says.
func askAgent(ctx context.Context, dial agentclient.Dialer, gen cube.Generation) error {
	status, err := agentclient.GetStatus(ctx, dial)
	switch {
	case err == nil && status.Generation != uint64(gen):
		return fmt.Errorf("%w: it says that it is in generation %d of the sandbox, which is in %d", cube.ErrAgent, status.Generation, gen)
	case err == nil && status.InitLate && status.InitGone != "":
		why := oneLine(status.InitGone[:min(len(status.InitGone), maxReason)])
		return fmt.Errorf("%w: it can start no program: the init of the users' processes has ended, and its successor has not begun: %s", cube.ErrAgent, why)
	case err == nil && status.InitLate:
		return fmt.Errorf("%w: it can start no program: the init of the users' processes does not answer; a process inside has stopped it, traces it or keeps it busy", cube.ErrAgent)
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err() // it was not given the time to answer
	case errors.Is(err, network.ErrLimit):
		return fmt.Errorf("%w: nothing is known of the agent: %w", cube.ErrConflict, err)
	case errors.Is(err, network.ErrTimeout), errors.Is(err, network.ErrUnreachable), isRefused(err):
		return fmt.Errorf("%w: it takes no connection: %w", cube.ErrAgent, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: it has not answered in time", cube.ErrAgent)
	}
	return err
}

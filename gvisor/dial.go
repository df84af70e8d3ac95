package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/network/api"
)

// Dial implements cube.Engine.
func (e *Engine) Dial(ctx context.Context, id cube.SandboxID, gen cube.Generation, port uint16) (net.Conn, error) {
	s, err := e.find(id)
	if err != nil {
		return nil, err
	}
	if port == agentapi.ControlPort {
		return nil, fmt.Errorf("dial %s: port %d is the agent's own: %w", id, port, cube.ErrRefused)
	}
	l, info, _ := s.current()
	if info.State == cube.StateDead {
		return nil, deadError(info)
	}
	if gen != 0 && gen != info.Generation {
		return nil, fmt.Errorf("dial %s: generation %d is over, %d is the current one: %w", id, gen, info.Generation, cube.ErrNotFound)
	}
	via := api.ViaAuto
	if port == agentapi.EnvdPort {
		if c := s.takeSpare(l); c != nil {
			return c, nil
		}
		via = api.ViaDirect
	}
	conn, err := s.dial(ctx, l, port, via)
	if err != nil {
		return nil, fmt.Errorf("dial port %d of %s: %w", port, id, err)
	}
	return conn, nil
}

// dial dials into the current life, and again when the network process has just been restarted and
// has not been handed the life yet.
func (s *sandbox) dial(ctx context.Context, l life, port uint16, via api.Via) (net.Conn, error) {
	for deadline := time.Now().Add(2 * time.Second); ; {
		conn, err := l.dial(ctx, port, via)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrUnavailable) || time.Now().After(deadline) {
			return nil, err
		}
		if now, info, _ := s.current(); now != l || info.State == cube.StateDead {
			return nil, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lend gives the first who dials envd a connection that is there already.
func (e *Engine) lend(id cube.SandboxID, l life, c net.Conn) {
	s, err := e.find(id)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.life == l && !s.gone && s.info.State != cube.StateDead {
			s.spare = c
			return
		}
	}
	c.Close() // it was quick to go
}

// takeSpare returns the connection that was lent, if it still stands.
func (s *sandbox) takeSpare(l life) net.Conn {
	s.mu.Lock()
	c := s.spare
	if c != nil && s.life == l {
		s.spare = nil
	}
	s.mu.Unlock()
	if c == nil || connected(c) {
		return c
	}
	c.Close()
	return nil
}

func isRefused(err error) bool { return errors.Is(err, cube.ErrRefused) }

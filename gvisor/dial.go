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
	life, info, _ := s.current()
	if info.State == cube.StateDead {
		return nil, deadError(info)
	}
	if gen != 0 && gen != info.Generation {
		return nil, fmt.Errorf("dial %s: generation %d is over, %d is the current one: %w", id, gen, info.Generation, cube.ErrNotFound)
	}
	d := api.Dial{Life: life, Port: port, Via: api.ViaAuto}
	if port == agentapi.EnvdPort {
		if c := s.takeSpare(life); c != nil {
			return c, nil
		}
		d.Via = api.ViaDirect
	}
	conn, err := e.dialLife(ctx, s, d)
	if err != nil {
		return nil, fmt.Errorf("dial port %d of %s: %w", port, id, err)
	}
	return conn, nil
}

// dialLife dials, and again when the network process has just been restarted and
// has not been handed the life yet.
func (e *Engine) dialLife(ctx context.Context, s *sandbox, d api.Dial) (net.Conn, error) {
	for deadline := time.Now().Add(2 * time.Second); ; {
		conn, err := e.net.Dial(ctx, d)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, cube.ErrNotFound) && !errors.Is(err, cube.ErrUnavailable) || time.Now().After(deadline) {
			return nil, err
		}
		if life, info, _ := s.current(); life != d.Life || info.State == cube.StateDead {
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
func (e *Engine) lend(id cube.SandboxID, life string, c net.Conn) {
	s, err := e.find(id)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.life == life && !s.gone && s.info.State != cube.StateDead {
			s.spare = c
			return
		}
	}
	c.Close() // it was quick to go
}

// takeSpare returns the connection that was lent, if it still stands.
func (s *sandbox) takeSpare(life string) net.Conn {
	s.mu.Lock()
	c := s.spare
	if c != nil && s.life == life {
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

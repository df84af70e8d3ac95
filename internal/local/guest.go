package local

import (
	"context"
	"fmt"
	"net"

	cube "cubesandbox"
	"cubesandbox/guest/agentclient"
	"cubesandbox/probe"
)

// longestFile bounds what ReadFile takes from a sandbox, in bytes.
const longestFile = 64 << 20

// root is who Run and the others are inside.
const root = "root"

// Shell runs programs and reaches files in one sandbox, as root, over connections
// that it keeps open. A rollback of the sandbox ends them.
type Shell struct {
	c  *agentclient.Client
	id cube.SandboxID
}

// Shell opens one. token is the sandbox's access token, "" for none. Nothing is
// sent before the first call.
func (s *Session) Shell(id cube.SandboxID, token string) *Shell {
	dial := func(ctx context.Context, port uint16) (net.Conn, error) { return s.Engine.Dial(ctx, id, 0, port) }
	return &Shell{agentclient.New(dial, token), id}
}

// Client is the agent's client below.
func (s *Shell) Client() *agentclient.Client { return s.c }

// Close closes the connections.
func (s *Shell) Close() { s.c.Close() }

// Run runs a program and waits for its end, whatever that is.
func (s *Shell) Run(ctx context.Context, argv ...string) (probe.Output, error) {
	r, err := s.c.Run(ctx, argv[0], argv[1:], agentclient.RunOptions{User: root, Cwd: "/"})
	if err != nil {
		return probe.Output{}, fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	return probe.Output{Stdout: r.Stdout, Stderr: r.Stderr, Exit: r.ExitCode}, nil
}

// WriteFile writes a file.
func (s *Shell) WriteFile(ctx context.Context, path string, content []byte) error {
	if err := s.c.WriteFile(ctx, root, path, content); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	return nil
}

// ReadFile reads a file.
func (s *Shell) ReadFile(ctx context.Context, path string) ([]byte, error) {
	b, err := s.c.ReadFile(ctx, root, path, longestFile)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	return b, nil
}

// Run implements probe.Guest, for sandboxes without an access token.
func (s *Session) Run(ctx context.Context, id cube.SandboxID, argv ...string) (probe.Output, error) {
	sh := s.Shell(id, "")
	defer sh.Close()
	return sh.Run(ctx, argv...)
}

// WriteFile implements probe.Guest.
func (s *Session) WriteFile(ctx context.Context, id cube.SandboxID, path string, content []byte) error {
	sh := s.Shell(id, "")
	defer sh.Close()
	return sh.WriteFile(ctx, path, content)
}

// ReadFile implements probe.Guest.
func (s *Session) ReadFile(ctx context.Context, id cube.SandboxID, path string) ([]byte, error) {
	sh := s.Shell(id, "")
	defer sh.Close()
	return sh.ReadFile(ctx, path)
}

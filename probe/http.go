package probe

import (
	"bytes"
	"context"
	"io"
	"sync"

	cube "cubesandbox"
	"cubesandbox/client"
)

// HTTPTarget is a server under probe, through its API and its data plane.
type HTTPTarget struct {
	c        *client.Client
	template string

	mu     sync.Mutex // guards guests
	guests map[string]*client.Guest
}

var _ Target = (*HTTPTarget)(nil)

// NewHTTPTarget returns one. template is the name or id of what sandboxes start from.
func NewHTTPTarget(c *client.Client, template string) *HTTPTarget {
	return &HTTPTarget{c: c, template: template, guests: map[string]*client.Guest{}}
}

// Create implements Target.
func (t *HTTPTarget) Create(ctx context.Context, snapshot string) (string, error) {
	if snapshot == "" {
		snapshot = t.template
	}
	s, err := t.c.Create(ctx, client.NewSandbox{Template: snapshot})
	if err != nil {
		return "", err
	}
	return string(s.ID), t.enter(s)
}

// enter keeps the inside of a new sandbox.
func (t *HTTPTarget) enter(s client.Sandbox) error {
	g, err := t.c.Guest(s.ID, s.AccessToken)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guests[string(s.ID)] = g
	return nil
}

// inside returns the inside of a sandbox that was made here, or else asks for its token.
func (t *HTTPTarget) inside(ctx context.Context, sandbox string) (*client.Guest, error) {
	t.mu.Lock()
	g, ok := t.guests[sandbox]
	t.mu.Unlock()
	if ok {
		return g, nil
	}
	s, err := t.c.Get(ctx, cube.SandboxID(sandbox))
	if err != nil {
		return nil, err
	}
	return t.c.Guest(s.ID, s.AccessToken)
}

// Snapshot implements Target.
func (t *HTTPTarget) Snapshot(ctx context.Context, sandbox string) (string, error) {
	s, err := t.c.Snapshot(ctx, cube.SandboxID(sandbox), "")
	return string(s.ID), err
}

// Rollback implements Target.
func (t *HTTPTarget) Rollback(ctx context.Context, sandbox, snapshot string) error {
	return t.c.Rollback(ctx, cube.SandboxID(sandbox), snapshot)
}

// Clone makes n running copies.
func (t *HTTPTarget) Clone(ctx context.Context, sandbox string, n int) ([]string, error) {
	clones, err := t.c.Clone(ctx, cube.SandboxID(sandbox), client.Cloning{Count: n})
	ids := make([]string, len(clones))
	for i, s := range clones {
		ids[i] = string(s.ID)
		if err == nil {
			err = t.enter(s)
		}
	}
	return ids, err
}

// Kill implements Target.
func (t *HTTPTarget) Kill(ctx context.Context, sandbox string) error {
	if err := t.c.Kill(ctx, cube.SandboxID(sandbox)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.guests, sandbox)
	return nil
}

// DeleteSnapshot implements Target.
func (t *HTTPTarget) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return t.c.DeleteImage(ctx, snapshot)
}

// Sandboxes implements Target.
func (t *HTTPTarget) Sandboxes(ctx context.Context) ([]string, error) {
	all, err := t.c.List(ctx, client.Query{})
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = string(s.ID)
	}
	return ids, err
}

// Snapshots implements Target.
func (t *HTTPTarget) Snapshots(ctx context.Context) ([]string, error) {
	all, err := t.c.Snapshots(ctx, "")
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = string(s.ID)
	}
	return ids, err
}

// Run implements Target.
func (t *HTTPTarget) Run(ctx context.Context, sandbox string, argv ...string) (Output, error) {
	g, err := t.inside(ctx, sandbox)
	if err != nil {
		return Output{}, err
	}
	var stdout, stderr bytes.Buffer
	exit, err := g.Run(ctx, client.Command{Argv: argv, User: root, Cwd: "/", Stdout: &stdout, Stderr: &stderr})
	return Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Exit: exit.Code}, err
}

// root is who works inside.
const root = "root"

// WriteFile implements Target.
func (t *HTTPTarget) WriteFile(ctx context.Context, sandbox, path string, content []byte) error {
	g, err := t.inside(ctx, sandbox)
	if err != nil {
		return err
	}
	return g.WriteFile(ctx, root, path, bytes.NewReader(content))
}

// ReadFile implements Target.
func (t *HTTPTarget) ReadFile(ctx context.Context, sandbox, path string) ([]byte, error) {
	g, err := t.inside(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	f, err := g.ReadFile(ctx, root, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

package http

import (
	"context"
	"time"

	cube "cubesandbox"
)

// stub is a service on which every call of the API does what act does.
type stub struct {
	cube.Service // the data plane's part: nil, for the API does not call it
	act          func(ctx context.Context) error
	// record is what those answer that give one.
	record cube.Record
}

// failing is a stub that fails.
func failing(err error) *stub {
	return &stub{act: func(context.Context) error { return err }}
}

func (s *stub) Create(ctx context.Context, _ cube.NewSandbox) (cube.Record, error) {
	return s.record, s.act(ctx)
}

func (s *stub) Get(ctx context.Context, _ cube.SandboxID) (cube.Record, error) {
	return s.record, s.act(ctx)
}

func (s *stub) List(ctx context.Context, _ cube.SandboxQuery) (cube.SandboxPage, error) {
	return cube.SandboxPage{Sandboxes: []cube.Record{s.record}}, s.act(ctx)
}

func (s *stub) Kill(ctx context.Context, _ cube.SandboxID) error { return s.act(ctx) }

func (s *stub) Pause(ctx context.Context, _ cube.SandboxID) error { return s.act(ctx) }

func (s *stub) Resume(ctx context.Context, _ cube.SandboxID, _ cube.Resumption) (cube.Record, error) {
	return s.record, s.act(ctx)
}

func (s *stub) Connect(ctx context.Context, _ cube.SandboxID, _ cube.Resumption) (cube.Record, bool, error) {
	return s.record, false, s.act(ctx)
}

func (s *stub) SetTimeout(ctx context.Context, _ cube.SandboxID, _ time.Duration) error {
	return s.act(ctx)
}

func (s *stub) Refresh(ctx context.Context, _ cube.SandboxID, _ time.Duration) error {
	return s.act(ctx)
}

func (s *stub) Rollback(ctx context.Context, _ cube.SandboxID, _ string) (cube.Record, error) {
	return s.record, s.act(ctx)
}

func (s *stub) Clone(ctx context.Context, _ cube.SandboxID, _ cube.Cloning) ([]cube.Record, error) {
	return []cube.Record{s.record}, s.act(ctx)
}

func (s *stub) Snapshot(ctx context.Context, _ cube.SandboxID, _ string) (cube.Snapshot, error) {
	return cube.Snapshot{}, s.act(ctx)
}

func (s *stub) Snapshots(ctx context.Context, _ cube.SnapshotQuery) (cube.SnapshotPage, error) {
	return cube.SnapshotPage{}, s.act(ctx)
}

func (s *stub) Templates(ctx context.Context) ([]cube.Template, error) { return nil, s.act(ctx) }

func (s *stub) DeleteImage(ctx context.Context, _ string) error { return s.act(ctx) }

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
	// The following are what those answer that give such.
	record    cube.Record
	ended     []cube.Record
	snapshot  cube.Snapshot
	snapshots []cube.Snapshot // the newest first
	spaces    map[cube.ImageID]cube.Space
	usage     cube.Usage
	templates []cube.Template
	image     cube.Image
	garbage   []cube.Garbage
	plans     []cube.PlanState
	// asked is what the last call was asked for, beside the id.
	asked any
}

// willing is a stub on which all goes well.
func willing() *stub { return failing(nil) }

// failing is a stub that fails.
func failing(err error) *stub {
	return &stub{act: func(context.Context) error { return err }, record: cube.Record{Phase: cube.PhaseRunning, OnTimeout: cube.OnTimeoutKill}}
}

func (s *stub) Create(ctx context.Context, q cube.NewSandbox) (cube.Record, error) {
	s.asked = q
	return s.record, s.act(ctx)
}

func (s *stub) Get(ctx context.Context, _ cube.SandboxID) (cube.Record, error) {
	return s.record, s.act(ctx)
}

func (s *stub) List(ctx context.Context, q cube.SandboxQuery) (cube.SandboxPage, error) {
	s.asked = q
	return cube.SandboxPage{Sandboxes: []cube.Record{s.record}}, s.act(ctx)
}

func (s *stub) Spaces(context.Context) map[cube.ImageID]cube.Space { return s.spaces }

func (s *stub) Usage(ctx context.Context, _ cube.SandboxID) (cube.Usage, error) {
	return s.usage, s.act(ctx)
}

func (s *stub) Kill(ctx context.Context, _ cube.SandboxID) error { return s.act(ctx) }

func (s *stub) Pause(ctx context.Context, _ cube.SandboxID, q cube.Pausing) error {
	s.asked = q
	return s.act(ctx)
}

func (s *stub) Resume(ctx context.Context, _ cube.SandboxID, q cube.Resumption) (cube.Record, error) {
	s.asked = q
	return s.record, s.act(ctx)
}

func (s *stub) Connect(ctx context.Context, _ cube.SandboxID, q cube.Resumption) (cube.Record, bool, error) {
	s.asked = q
	return s.record, false, s.act(ctx)
}

func (s *stub) SetTimeout(ctx context.Context, _ cube.SandboxID, q time.Duration) error {
	s.asked = q
	return s.act(ctx)
}

func (s *stub) Refresh(ctx context.Context, _ cube.SandboxID, q time.Duration) error {
	s.asked = q
	return s.act(ctx)
}

func (s *stub) Rollback(ctx context.Context, _ cube.SandboxID, q string) (cube.Record, error) {
	s.asked = q
	return s.record, s.act(ctx)
}

func (s *stub) Clone(ctx context.Context, _ cube.SandboxID, q cube.Cloning) ([]cube.Record, error) {
	s.asked = q
	return []cube.Record{s.record}, s.act(ctx)
}

func (s *stub) Snapshot(ctx context.Context, _ cube.SandboxID, q cube.Snapshotting) (cube.Snapshot, error) {
	s.asked = q
	return s.snapshot, s.act(ctx)
}

func (s *stub) Snapshots(ctx context.Context, q cube.SnapshotQuery) (cube.SnapshotPage, error) {
	s.asked = q
	return cube.SnapshotPage{Snapshots: s.snapshots}, s.act(ctx)
}

func (s *stub) Templates(ctx context.Context) ([]cube.Template, error) {
	return s.templates, s.act(ctx)
}

func (s *stub) DeleteImage(ctx context.Context, q string) error {
	s.asked = q
	return s.act(ctx)
}

func (s *stub) Recover(ctx context.Context, _ cube.SandboxID) (cube.Record, error) {
	return s.record, s.act(ctx)
}

func (s *stub) Ended(ctx context.Context) ([]cube.Record, error) { return s.ended, s.act(ctx) }

func (s *stub) VerifyImage(ctx context.Context, q string) (cube.Image, error) {
	s.asked = q
	return s.image, s.act(ctx)
}

func (s *stub) Collect(ctx context.Context, dry bool) ([]cube.Garbage, error) {
	s.asked = dry
	return s.garbage, s.act(ctx)
}

func (s *stub) Plans(ctx context.Context) ([]cube.PlanState, error) { return s.plans, s.act(ctx) }

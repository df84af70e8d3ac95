package probe

import (
	"context"
	"fmt"

	cube "cubesandbox"
)

// Images is the part of the image store that a probe needs.
type Images interface {
	Images() ([]cube.Image, error)
	Delete(id cube.ImageID) error
}

// Guest runs programs and reaches files in sandboxes, as root.
type Guest interface {
	Run(ctx context.Context, id cube.SandboxID, argv ...string) (Output, error)
	WriteFile(ctx context.Context, id cube.SandboxID, path string, content []byte) error
	ReadFile(ctx context.Context, id cube.SandboxID, path string) ([]byte, error)
}

// EngineTarget is the engine itself under probe.
type EngineTarget struct {
	Engine cube.Engine
	Images Images
	Guest  Guest
	// Base is the image that sandboxes start from.
	Base cube.ImageID
}

var _ Target = EngineTarget{}

// Create implements Target.
func (t EngineTarget) Create(ctx context.Context, snapshot string) (string, error) {
	image := cube.ImageID(snapshot)
	if snapshot == "" {
		image = t.Base
	}
	s, err := t.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: image})
	return string(s.ID), err
}

// Snapshot implements Target.
func (t EngineTarget) Snapshot(ctx context.Context, sandbox string) (string, error) {
	img, err := t.Engine.Save(ctx, cube.SandboxID(sandbox), cube.NewSnapshotID())
	return string(img.ID), err
}

// Rollback implements Target.
func (t EngineTarget) Rollback(ctx context.Context, sandbox, snapshot string) error {
	s, err := t.Engine.Rollback(ctx, cube.SandboxID(sandbox), cube.ImageID(snapshot))
	if err == nil && string(s.ID) != sandbox {
		err = fmt.Errorf("rollback of %s gave %s", sandbox, s.ID)
	}
	return err
}

// Clone makes n running copies.
func (t EngineTarget) Clone(ctx context.Context, sandbox string, n int) ([]string, error) {
	specs := make([]cube.CreateSpec, n)
	for i := range specs {
		specs[i].ID = cube.NewSandboxID()
	}
	clones, err := t.Engine.Clone(ctx, cube.SandboxID(sandbox), specs, 0)
	ids := make([]string, len(clones))
	for i, c := range clones {
		ids[i] = string(c.ID)
	}
	return ids, err
}

// Kill implements Target.
func (t EngineTarget) Kill(ctx context.Context, sandbox string) error {
	return t.Engine.Kill(ctx, cube.SandboxID(sandbox))
}

// DeleteSnapshot implements Target.
func (t EngineTarget) DeleteSnapshot(_ context.Context, snapshot string) error {
	return t.Images.Delete(cube.ImageID(snapshot))
}

// Sandboxes implements Target.
func (t EngineTarget) Sandboxes(ctx context.Context) ([]string, error) {
	all, err := t.Engine.Sandboxes(ctx)
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = string(s.ID)
	}
	return ids, err
}

// Snapshots implements Target.
func (t EngineTarget) Snapshots(context.Context) ([]string, error) {
	all, err := t.Images.Images()
	var ids []string
	for _, img := range all {
		if img.Kind != cube.KindTemplate {
			ids = append(ids, string(img.ID))
		}
	}
	return ids, err
}

// Run implements Target.
func (t EngineTarget) Run(ctx context.Context, sandbox string, argv ...string) (Output, error) {
	return t.Guest.Run(ctx, cube.SandboxID(sandbox), argv...)
}

// WriteFile implements Target.
func (t EngineTarget) WriteFile(ctx context.Context, sandbox, path string, content []byte) error {
	return t.Guest.WriteFile(ctx, cube.SandboxID(sandbox), path, content)
}

// ReadFile implements Target.
func (t EngineTarget) ReadFile(ctx context.Context, sandbox, path string) ([]byte, error) {
	return t.Guest.ReadFile(ctx, cube.SandboxID(sandbox), path)
}

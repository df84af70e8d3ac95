package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	cube "cubesandbox"
	"cubesandbox/bench"
	"cubesandbox/internal/local"
	"cubesandbox/internal/progress"
)

// buildBaseline makes runsc ready to restore the guest that the engine restores.
func (a *app) buildBaseline(ctx context.Context, s *local.Session, conf bench.Config, p *progress.Reporter) (*bench.Baseline, error) {
	runsc, err := a.buildRunsc(ctx, s.Engine.Version(), p)
	if err != nil {
		return nil, err
	}
	img, err := s.Images.Image(conf.Template)
	if err != nil {
		return nil, err
	}
	spec, err := a.specOf(ctx, s, conf.Template)
	if err != nil {
		return nil, fmt.Errorf("what a sandbox runs: %w", err)
	}
	dir, err := os.MkdirTemp(a.where.StateDir, "baseline-")
	if err != nil {
		return nil, err
	}
	b := &bench.Baseline{Runsc: runsc, Dir: dir, Spec: spec}
	for digest, path := range map[string]*string{img.Rootfs: &b.Rootfs, img.Agent: &b.Agent} {
		f, err := s.Images.OpenRootfs(digest)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		*path = f.Name()
		f.Close()
	}
	return b, nil
}

// buildRunsc builds the command line of the module that this checkout requires, without
// our patches. It is kept by what the engine's version says of the module.
func (a *app) buildRunsc(ctx context.Context, engine string, p *progress.Reporter) (string, error) {
	path := filepath.Join(a.where.CacheDir, "runsc", moduleOf(engine), "runsc")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	step := p.Begin("build runsc")
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", tmp, "gvisor.dev/gvisor/runsc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		step.Fail(err)
		return "", fmt.Errorf("build runsc (in the checkout, with Go installed): %w: %.500s", err, out)
	}
	step.Done("")
	return path, nil
}

// moduleOf is time and commit of the gVisor that an engine is made of, which its version
// begins with.
func moduleOf(engine string) string {
	parts := strings.Split(engine, "-")
	return strings.Join(parts[:min(2, len(parts))], "-")
}

// specOf reads what gVisor was given for a sandbox of an image.
func (a *app) specOf(ctx context.Context, s *local.Session, image cube.ImageID) (_ *specs.Spec, err error) {
	id := cube.NewSandboxID()
	if _, err := s.Engine.Create(ctx, cube.CreateSpec{ID: id, Image: image}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Engine.Kill(context.WithoutCancel(ctx), id)) }()
	host, err := s.Host(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range host.Lives {
		if l.Labels.Sandbox != id {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.RunDir(), "lives", l.Life, "config.json"))
		if err != nil {
			return nil, err
		}
		var spec specs.Spec
		return &spec, json.Unmarshal(b, &spec)
	}
	return nil, fmt.Errorf("sandbox %s has no life: %w", id, cube.ErrNotFound)
}

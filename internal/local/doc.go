// Package local is a session with the engine on this machine: what the command
// line, the probe, the benchmark and the end-to-end tests have in common.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor"
	"cubesandbox/image"
	"cubesandbox/internal/progress"
	"cubesandbox/template"
)

// Options say where things are.
type Options struct {
	// StateDir holds images, RunDir sockets and records, BinDir the other programs,
	// CacheDir what can be made again.
	StateDir, RunDir, BinDir, CacheDir string
	// MemoryBudget bounds what sandboxes may take together, in bytes; 0: what there is.
	MemoryBudget int64
	// Linger is how long a keeper of another version stays without a sandbox; 0: a
	// minute.
	Linger time.Duration
	// Log gets what the engine does; nil drops it.
	Log *slog.Logger `json:"-"`
	// Progress tells of long steps; nil is silent.
	Progress *progress.Reporter `json:"-"`
}

// ErrNotRoot is what Open gives to anybody but root.
var ErrNotRoot = errors.New("this needs root: it starts the keeper, which makes cgroups and namespaces")

// Session is an open engine and its images.
type Session struct {
	Engine *gvisor.Engine
	Images *image.Store
	names  Names
	opt    Options
}

// Open opens the engine, starting its keeper where none runs.
func Open(ctx context.Context, o Options) (*Session, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	// Sentries, which run as nobody, pass through it and what is above it.
	if err := os.MkdirAll(o.StateDir, 0o711); err != nil {
		return nil, err
	}
	// What it will hold is durable only if it is.
	if err := syncDir(filepath.Dir(o.StateDir)); err != nil {
		return nil, err
	}
	images, err := image.Open(o.StateDir)
	if err != nil {
		return nil, err
	}
	e, err := gvisor.Open(ctx, gvisor.Config{
		StateDir: o.StateDir, RunDir: o.RunDir, BinDir: o.BinDir, Images: images, MemoryBudget: o.MemoryBudget, Linger: o.Linger, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("open the engine: %w", err)
	}
	names := NamesIn(o.StateDir)
	names.sweep()
	return &Session{Engine: e, Images: images, names: names, opt: o}, nil
}

// RunDir is the engine's.
func (s *Session) RunDir() string { return s.opt.RunDir }

// Close lets go of the engine; sandboxes run on.
func (s *Session) Close() error { return s.Engine.Close() }

// Build makes a template by name or folder, or finds that it is there.
func (s *Session) Build(ctx context.Context, name string, fresh bool) (cube.Image, error) {
	dir, err := template.Find(name)
	if err != nil {
		return cube.Image{}, err
	}
	img, err := template.Build(ctx, template.Options{
		Definition: dir, CacheDir: s.opt.CacheDir, Fresh: fresh,
		AgentDigest: s.Engine.Agent(), EngineVersion: s.Engine.Version(),
		Images: s.Images, Engine: s.Engine, Progress: s.opt.Progress,
	})
	if err != nil {
		return cube.Image{}, err
	}
	// A name must not outlive a power cut that its template does not.
	if err := s.Images.Sync(ctx, img.ID); err != nil {
		return cube.Image{}, err
	}
	img.Durable = true
	return img, s.names.Set(filepath.Base(dir), img.ID)
}

package gvisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
	"cubesandbox/network"
)

// Config says what an engine works with.
type Config struct {
	// StateDir holds what outlives a reboot: images and installed engines.
	StateDir string
	// RunDir holds sockets and records of what runs; at most 60 bytes long.
	RunDir string
	// BinDir has cube-sentry, cube-network and cube-guest.erofs.
	BinDir string
	// Images is the store of saved states; nil opens StateDir.
	Images *image.Store
	// MemoryBudget bounds what sandboxes may take together, in bytes; 0 means
	// what the machine has available.
	MemoryBudget int64
	// Log gets what happens; nil drops it.
	Log *slog.Logger
}

// Engine is cube.Engine over gVisor.
type Engine struct {
	conf   Config
	log    *slog.Logger
	images *image.Store
	keeper *keeper
	net    *network.Client
	owner  string // names this engine in the labels of what it has begun
	agent  string // digest of the agent's file system for new templates

	admission admission
	restores  chan struct{} // as many restores at once as there are processors
	events    broadcast
	pools     pools

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	lastEvent sync.Map // life → number of the agent's newest event when it was configured

	mu        sync.Mutex // guards the following
	sandboxes map[cube.SandboxID]*sandbox
	byLife    map[string]*sandbox
	claimed   map[cube.SandboxID]struct{} // ids of sandboxes that are being made
}

var _ cube.Engine = (*Engine)(nil)

// Open connects to the keeper, starting it where none runs, and takes up the
// sandboxes that are there. What another engine had begun and not finished is
// ended; a sandbox that it had frozen runs again.
func Open(ctx context.Context, conf Config) (*Engine, error) {
	if conf.Log == nil {
		conf.Log = slog.New(slog.DiscardHandler)
	}
	if len(conf.RunDir) > 60 {
		return nil, fmt.Errorf("run directory %s is longer than the 60 bytes that leave room for a socket's name: %w", conf.RunDir, cube.ErrInvalid)
	}
	e := &Engine{conf: conf, log: conf.Log, images: conf.Images, owner: randomHex(8),
		sandboxes: map[cube.SandboxID]*sandbox{}, byLife: map[string]*sandbox{}, claimed: map[cube.SandboxID]struct{}{},
		restores: make(chan struct{}, runtime.NumCPU())}
	e.admission.budget = conf.MemoryBudget
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	if e.images == nil {
		if e.images, err = image.Open(conf.StateDir); err != nil {
			return nil, err
		}
	}
	if e.agent, err = e.images.PutRootfs(ctx, filepath.Join(conf.BinDir, "cube-guest.erofs")); err != nil {
		return nil, fmt.Errorf("guest agent: %w; build it with make", err)
	}
	if e.keeper, err = openKeeper(ctx, conf, e.died); err != nil {
		return nil, err
	}
	e.net = network.NewClient(e.keeper.info.Network)
	e.pools.init(e)
	if err := e.takeUp(ctx); err != nil {
		e.Close()
		return nil, err
	}
	e.wg.Go(e.pools.run)
	e.wg.Go(e.watchKeeper)
	return e, nil
}

// Version names what makes images here, and what can restore them.
func (e *Engine) Version() string { return e.keeper.info.Engine }

// Agent is the digest of the guest agent's file system that new templates get.
func (e *Engine) Agent() string { return e.agent }

// Close implements cube.Engine.
func (e *Engine) Close() error {
	e.cancel()
	e.wg.Wait()
	var errs []error
	for _, l := range e.pools.drain() {
		errs = append(errs, e.endLife(l, cube.DeathKilled))
	}
	errs = append(errs, e.net.Close(), e.keeper.close())
	e.events.close()
	return errors.Join(errs...)
}

// Shutdown ends every sandbox, the network process and the keeper, and closes the
// engine.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.cancel()
	e.wg.Wait()
	e.pools.drain()
	err := e.keeper.call(ctx, keeperapi.MethodShutdown, nil, nil, nil)
	return errors.Join(err, e.net.Close(), e.keeper.close())
}

// takeUp enters what runs already.
func (e *Engine) takeUp(ctx context.Context) error {
	lives, err := e.keeper.lives(ctx)
	if err != nil {
		return err
	}
	current := map[cube.SandboxID]keeperapi.Life{}
	var end []string
	for _, l := range lives {
		id := l.Labels.Sandbox
		old, twice := current[id]
		switch {
		case l.Labels.Role != keeperapi.RoleCurrent:
			end = append(end, l.Life)
		case twice && old.Labels.Generation > l.Labels.Generation:
			end = append(end, l.Life)
		case twice:
			end = append(end, old.Life)
			current[id] = l
		default:
			current[id] = l
		}
	}
	for _, id := range end {
		if err := e.endLife(id, cube.DeathKilled); err != nil {
			return err
		}
	}
	for _, l := range current {
		s := newSandbox(l)
		if l.State == keeperapi.StatePaused {
			if err := e.thaw(ctx, l.Life); err != nil {
				return err
			}
		}
		e.enter(s)
		if l.State != keeperapi.StateDead && !l.Detached {
			e.follow(s)
		}
	}
	return nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// installedSentry is where a version of cube-sentry lives: images need it for as
// long as they exist, and nobody, whom a sentry runs as, must be able to read it.
func installedSentry(stateDir, version string) string {
	return filepath.Join(stateDir, "engines", version, "cube-sentry")
}

// mkdirOpen makes directories that everybody may pass through.
func mkdirOpen(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}

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
	"syscall"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
)

// Config says what an engine works with.
type Config struct {
	// StateDir holds what outlives a reboot: images and installed engines.
	StateDir string
	// RunDir holds sockets and records of what runs; at most 49 bytes long.
	RunDir string
	// BinDir has cube-sentry, cube-network and cube-guest.erofs.
	BinDir string
	// Images is the store of saved states; nil opens StateDir.
	Images *image.Store
	// MemoryBudget bounds what sandboxes may take together, in bytes; 0 means
	// what the machine has available.
	MemoryBudget int64
	// Linger is how long a keeper of another version stays without a sandbox; 0: a
	// minute.
	Linger time.Duration
	// Log gets what happens; nil drops it.
	Log *slog.Logger
}

// Engine is cube.Engine over gVisor.
type Engine struct {
	conf    Config
	log     *slog.Logger
	images  *image.Store
	keepers *keepers
	agent   string // digest of the agent's file system for new templates

	admission admission
	restores  chan struct{} // as many restores at once as there are processors
	early     early
	cache     pageCache
	events    broadcast
	pools     pools

	only   *os.File        // the lock that makes this the only engine of its run directory
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // background work
	verbs  sync.WaitGroup // verbs at work

	lastEvent sync.Map // life → number of the agent's newest event when it was configured

	mu        sync.Mutex // guards the following
	closed    bool
	freeAgain *time.Timer               // frees pages once more, when what was ended is surely gone; nil before the first end
	dead      map[string]keeperapi.Life // lives that ended before they were entered
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
	if conf.Linger == 0 {
		conf.Linger = time.Minute
	}
	if len(conf.RunDir) > longestRunDir {
		return nil, fmt.Errorf("run directory %s is longer than the %d bytes that leave room for a socket's name: %w", conf.RunDir, longestRunDir, cube.ErrInvalid)
	}
	e := &Engine{conf: conf, log: conf.Log, images: conf.Images,
		sandboxes: map[cube.SandboxID]*sandbox{}, byLife: map[string]*sandbox{}, claimed: map[cube.SandboxID]struct{}{},
		dead:     map[string]keeperapi.Life{},
		restores: make(chan struct{}, runtime.NumCPU()),
		cache:    pageCache{looked: map[cube.BaseID]time.Time{}},
		early:    early{known: map[cube.BaseID]writes{}, asking: map[string]bool{}}}
	e.admission.budget = conf.MemoryBudget
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	if e.only, err = lockRunDir(conf.RunDir); err != nil {
		return nil, err
	}
	defer func() {
		if e.keepers == nil {
			e.cancel()
			e.only.Close()
		}
	}()
	if e.images == nil {
		if e.images, err = image.Open(conf.StateDir); err != nil {
			return nil, err
		}
	}
	if e.agent, err = e.images.PutRootfs(ctx, filepath.Join(conf.BinDir, "cube-guest.erofs")); err != nil {
		return nil, fmt.Errorf("guest agent: %w; build it with make", err)
	}
	// The next template needs it, whoever collects garbage meanwhile.
	agent, err := e.images.OpenRootfs(e.agent)
	if err != nil {
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	context.AfterFunc(e.ctx, func() { agent.Close() })
	if e.keepers, err = openKeepers(ctx, conf, e.died); err != nil {
		return nil, err
	}
	e.pools.init(e)
	if err := e.takeUp(ctx); err != nil {
		e.Close()
		return nil, err
	}
	e.wg.Go(e.pools.run)
	for _, k := range e.keepers.list() {
		e.tend(k)
	}
	return e, nil
}

// Version names what makes images here, and what can restore them.
func (e *Engine) Version() string { return e.keepers.current.version() }

// Agent is the digest of the guest agent's file system that new templates get.
func (e *Engine) Agent() string { return e.agent }

// Close implements cube.Engine. Verbs that are at work are cancelled, and end or
// undo what they do before it returns.
func (e *Engine) Close() error {
	e.halt()
	var errs []error
	for _, l := range e.pools.drain() {
		errs = append(errs, e.endLife(l, cube.DeathKilled))
	}
	return errors.Join(append(errs, e.release())...)
}

// halt refuses new verbs, and waits for those at work and for the background.
func (e *Engine) halt() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.verbs.Wait()
	e.wg.Wait()
}

func (e *Engine) release() error {
	err := e.keepers.close()
	e.events.close()
	e.only.Close()
	return err
}

// begin starts a verb: done ends it, and its context also ends with Close.
func (e *Engine) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, fmt.Errorf("engine is closed: %w", cube.ErrUnavailable)
	}
	e.verbs.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { stop(); cancel(); e.verbs.Done() }, nil
}

// background runs f, which ends when e.ctx does, unless the engine is closed.
func (e *Engine) background(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Go(f)
	}
}

// lockRunDir makes sure that no other engine works in the directory: it would end
// what we have begun.
func lockRunDir(dir string) (*os.File, error) {
	if err := mkdirOpen(dir); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "engine.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another engine works in %s; use that one, or another run directory: %w", dir, cube.ErrConflict)
	}
	return f, nil
}

// Shutdown ends every sandbox, the network processes and the keepers, and closes
// the engine.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.halt()
	e.pools.drain()
	err := e.keepers.shutdown(ctx)
	return errors.Join(err, e.release())
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// mkdirOpen makes a directory that everybody may pass through. One that is there
// must be ours alone to write to: what is found in it is believed.
func mkdirOpen(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s: want an absolute path: %w", dir, cube.ErrInvalid)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err == nil {
		switch {
		case st.Uid != uint32(os.Geteuid()):
			return fmt.Errorf("%s belongs to user %d; use a directory of your own: %w", dir, st.Uid, cube.ErrInvalid)
		case st.Mode&0o022 != 0:
			return fmt.Errorf("%s can be written to by others; run chmod go-w on it, or use another: %w", dir, cube.ErrInvalid)
		case st.Mode&0o011 != 0o011:
			return os.Chmod(dir, os.FileMode(st.Mode&0o777|0o011)) // sentries pass as nobody
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}

package sentry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/specutils"
	"gvisor.dev/gvisor/runsc/version"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// Config says where a keeper works.
type Config struct {
	// RunDir is the directory for sockets and records: on a tmpfs, root's, with a
	// path short enough for a unix socket (60 bytes).
	RunDir string
	// Cgroup is the keeper's node below each cgroup mount, for example "cube/1a2b3c4d".
	Cgroup string
	// Binary is this program's path: what a sentry executes. Nobody must be able
	// to read it, for that is what a sentry runs as.
	Binary string
	// Network is the path of cube-network.
	Network string
	Log     *slog.Logger
}

// Keeper is the parent of the sentries.
type Keeper struct {
	conf     Config
	log      *slog.Logger
	cgroups  *hierarchies
	gate     *gate
	server   *fdrpc.Server
	network  *networkProcess
	started  time.Time
	inode    uint64         // of the program that this process executes
	wg       sync.WaitGroup // one watcher a life
	ready    chan struct{}  // closed when the network process is there
	stop     chan struct{}  // closed to end Run
	litter   chan struct{}  // holds a token when there is something to collect
	stopOnce sync.Once

	mu    sync.Mutex // guards lives
	lives map[string]*life
}

// SocketName is the keeper's socket in its run directory.
const SocketName = "keeper.sock"

func (k *Keeper) livesDir() string  { return filepath.Join(k.conf.RunDir, "lives") }
func (k *Keeper) sentryDir() string { return filepath.Join(k.conf.RunDir, "s") }

// Run is the keeper's main function. It takes up what a former keeper left
// behind, serves until it is told to shut down or gets SIGTERM, and in the
// latter case leaves everything running for the next.
func Run(ctx context.Context, conf Config) error {
	if version.Version() == "VERSION_MISSING" {
		return errors.New("this binary was built without a version (-X …/runsc/version.version): it could not tell which images it can restore; build it with make")
	}
	k := &Keeper{conf: conf, log: conf.Log, started: time.Now(), lives: map[string]*life{}, ready: make(chan struct{}), stop: make(chan struct{}), litter: make(chan struct{}, 1)}
	for _, d := range []string{conf.RunDir, k.livesDir(), k.sentryDir()} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return err
		}
		// A umask must not keep sentries out.
		if err := os.Chmod(d, 0o711); err != nil {
			return err
		}
	}
	if err := ownStdio(conf.RunDir); err != nil {
		return err
	}
	// What was inherited from whoever started us is no business of a sentry's.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	var self syscall.Stat_t
	if err := syscall.Stat("/proc/self/exe", &self); err != nil {
		return err
	}
	k.inode = self.Ino
	specutils.ExePath = conf.Binary
	gvlog.SetTarget(new(gvlog.MultiEmitter)) // what matters comes back as an error
	var err error
	if k.cgroups, err = findHierarchies("/proc/self/mountinfo", conf.Cgroup); err != nil {
		return err
	}
	if !k.cgroups.limited {
		if k.gate, err = openGate(k.sentryDir(), k.place); err != nil {
			return fmt.Errorf("gate: %w", err)
		}
		defer k.gate.Close()
	}
	if err := k.adoptAll(); err != nil {
		return err
	}
	if k.network, err = k.startNetwork(ctx); err != nil {
		return fmt.Errorf("network process: %w", err)
	}
	close(k.ready)
	defer k.network.release()
	return k.serve(ctx)
}

func (k *Keeper) serve(ctx context.Context) error {
	s := fdrpc.NewServer(keeperapi.Protocol, keeperapi.Version)
	k.server = s
	s.Handle(keeperapi.MethodInfo, k.info)
	s.Handle(keeperapi.MethodBoot, k.boot)
	s.Handle(keeperapi.MethodStart, k.start)
	s.Handle(keeperapi.MethodRestore, k.restore)
	s.Handle(keeperapi.MethodWaitRestore, k.waitRestore)
	s.Handle(keeperapi.MethodPause, k.pause)
	s.Handle(keeperapi.MethodResume, k.resume)
	s.Handle(keeperapi.MethodSave, k.save)
	s.Handle(keeperapi.MethodLabel, k.label)
	s.Handle(keeperapi.MethodUsage, k.usage)
	s.Handle(keeperapi.MethodKill, k.kill)
	s.Handle(keeperapi.MethodList, k.list)
	s.Handle(keeperapi.MethodLeave, k.leave)
	s.Handle(keeperapi.MethodShutdown, k.shutdown)
	l, err := fdrpc.Listen(filepath.Join(k.conf.RunDir, SocketName), 0o600)
	if err != nil {
		return err
	}
	go k.collect()
	var served sync.WaitGroup
	served.Go(func() { s.Serve(l) })
	k.log.Info("keeper serves", "engine", Version(), "lives", len(k.lives))
	select {
	case <-ctx.Done():
	case <-k.stop:
	}
	l.Close()
	s.Close()
	served.Wait()
	return nil
}

// ownStdio gives this process standard files of its own. gVisor changes the
// owner of what it hands on as a guest's standard files, which must not be the
// host's /dev/null.
func ownStdio(dir string) error {
	path := filepath.Join(dir, "null")
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("null device of our own: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		// The run directory is on a nodev mount: an empty file does as well, for the
		// agent writes nothing there.
		os.Remove(path)
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err != nil {
		return err
	}
	os.Stdin, os.Stdout, os.Stderr = f, f, f
	return nil
}

// reserve enters a life that is being made.
func (k *Keeper) reserve(l *life) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.lives[l.rec.Life.Life]; ok {
		return fdrpc.Errorf(keeperapi.CodeExists, "life %s exists", l.rec.Life.Life)
	}
	k.lives[l.rec.Life.Life] = l
	return nil
}

func (k *Keeper) forget(l *life) {
	k.mu.Lock()
	delete(k.lives, l.rec.Life.Life)
	k.mu.Unlock()
}

// find returns a life by the reference in a request.
func (k *Keeper) find(id string) (*life, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.lives[id]
	if !ok {
		return nil, fdrpc.Errorf(keeperapi.CodeNoLife, "there is no life %s", id)
	}
	return l, nil
}

// place is the gate's: it moves the first stage of a sentry.
func (k *Keeper) place(pid int, id string) error {
	l, err := k.find(id)
	if err != nil {
		return err
	}
	return l.group.place(pid)
}

// died runs once for each life, when its process has ended.
func (k *Keeper) died(l *life) {
	<-k.ready
	v := l.view()
	k.network.unplug(v.Life)
	if err := l.release(); err != nil {
		k.log.Error("a dead life left something behind", "life", v.Life, "sandbox", v.Labels.Sandbox, "error", err)
	}
	close(l.released)
	select {
	case k.litter <- struct{}{}:
	default: // a collection is due already
	}
	k.log.Info("life ended", "life", v.Life, "sandbox", v.Labels.Sandbox, "reason", v.Death.Reason, "detail", v.Death.Detail)
	if k.server != nil {
		k.server.Notify(keeperapi.NoteDied, v)
	}
}

// collect runs the garbage collector when lives have ended. gVisor drops the
// os.Process of a sentry without waiting for it, and its descriptor is closed by
// the collector only, which in a keeper with nothing to do never runs.
func (k *Keeper) collect() {
	for {
		select {
		case <-k.litter:
			runtime.GC()
		case <-k.stop:
			return
		}
	}
}

func (k *Keeper) info(context.Context, *fdrpc.Request) (any, []*os.File, error) {
	return keeperapi.Info{
		PID: os.Getpid(), Inode: k.inode, Engine: Version(), Started: k.started,
		Network: filepath.Join(k.conf.RunDir, networkSocket), Cgroup: k.conf.Cgroup,
	}, nil, nil
}

// pageSize keeps an answer well below the largest message.
const pageSize = 50

func (k *Keeper) list(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.List
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	var ls []*life
	for id, l := range k.lives {
		if id > q.After {
			ls = append(ls, l)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(ls, func(a, b *life) int { return strings.Compare(a.rec.Life.Life, b.rec.Life.Life) })
	out := keeperapi.Lives{More: len(ls) > pageSize}
	for _, l := range ls[:min(len(ls), pageSize)] {
		out.Lives = append(out.Lives, l.view())
	}
	return out, nil, nil
}

// leave ends this process; what it keeps is written down for the next.
func (k *Keeper) leave(context.Context, *fdrpc.Request) (any, []*os.File, error) {
	k.quit()
	return nil, nil, nil
}

func (k *Keeper) quit() { k.stopOnce.Do(func() { close(k.stop) }) }

// shutdown ends everything.
func (k *Keeper) shutdown(ctx context.Context, _ *fdrpc.Request) (any, []*os.File, error) {
	k.mu.Lock()
	ls := make([]*life, 0, len(k.lives))
	for _, l := range k.lives {
		ls = append(ls, l)
	}
	k.mu.Unlock()
	var errs []error
	for _, l := range ls {
		errs = append(errs, k.end(l, cube.DeathKilled, true))
	}
	k.wg.Wait()
	errs = append(errs, k.network.end())
	k.cgroups.removeNode()
	for _, name := range []string{SocketName, networkSocket, "null"} {
		os.Remove(filepath.Join(k.conf.RunDir, name))
	}
	os.Remove(filepath.Join(k.sentryDir(), gateName))
	os.Remove(k.sentryDir())
	os.Remove(k.livesDir())
	k.quit()
	return nil, nil, errors.Join(errs...)
}

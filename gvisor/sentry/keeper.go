package sentry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/specutils"
	"gvisor.dev/gvisor/runsc/version"

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
	chores   sync.WaitGroup // what ends with stop
	ready    chan struct{}  // closed when the network process is there
	stop     chan struct{}  // closed to end Run
	litter   chan struct{}  // holds a token when there is something to collect
	stopOnce sync.Once

	mu     sync.Mutex // guards the following
	lives  map[string]*life
	ending bool // shutdown has begun
}

// SocketName is the keeper's socket in its run directory.
const SocketName = "keeper.sock"

func (k *Keeper) livesDir() string  { return filepath.Join(k.conf.RunDir, "lives") }
func (k *Keeper) sentryDir() string { return filepath.Join(k.conf.RunDir, "s") }

// Run is the keeper's main function. It takes up what a former keeper left
// behind, serves until it is told to shut down or gets SIGTERM, and in the
// latter case leaves everything running for the next.
func Run(ctx context.Context, conf Config) error {
	if err := checkBuild(version.Version()); err != nil {
		return err
	}
	if err := makeRunDir(conf.RunDir); err != nil {
		return err
	}
	lock, err := lockRunDir(ctx, conf.RunDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	k := &Keeper{conf: conf, log: conf.Log, started: time.Now(), lives: map[string]*life{}, ready: make(chan struct{}), stop: make(chan struct{}), litter: make(chan struct{}, 1)}
	k.server = k.newServer()
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
	if err := closeInherited(); err != nil {
		return err
	}
	var self syscall.Stat_t
	if err := syscall.Stat("/proc/self/exe", &self); err != nil {
		return err
	}
	k.inode = self.Ino
	specutils.ExePath = conf.Binary
	gvlog.SetTarget(new(gvlog.MultiEmitter)) // what matters comes back as an error
	if k.cgroups, err = findHierarchies("/proc/self/mountinfo", conf.Cgroup); err != nil {
		return err
	}
	if k.cgroups.limited {
		// Sentries would wait at one that another keeper has left.
		if err := os.Remove(filepath.Join(k.sentryDir(), gateName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	} else {
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

func (k *Keeper) newServer() *fdrpc.Server {
	s := fdrpc.NewServer(keeperapi.Protocol, keeperapi.Version)
	s.Handle(keeperapi.MethodInfo, k.info)
	s.Handle(keeperapi.MethodBoot, k.boot)
	s.Handle(keeperapi.MethodStart, k.start)
	s.Handle(keeperapi.MethodRestore, k.restore)
	s.Handle(keeperapi.MethodWaitRestore, k.waitRestore)
	s.Handle(keeperapi.MethodPause, k.pause)
	s.Handle(keeperapi.MethodResume, k.resume)
	s.Handle(keeperapi.MethodSave, k.save)
	s.Handle(keeperapi.MethodAdopt, k.adoptSaved)
	s.Handle(keeperapi.MethodFiles, k.files)
	s.Handle(keeperapi.MethodLabel, k.label)
	s.Handle(keeperapi.MethodEarlyWrites, k.earlyWrites)
	s.Handle(keeperapi.MethodGiveBack, k.giveBack)
	s.Handle(keeperapi.MethodUsage, k.usage)
	s.Handle(keeperapi.MethodKill, k.kill)
	s.Handle(keeperapi.MethodList, k.list)
	s.Handle(keeperapi.MethodLeave, k.leave)
	s.Handle(keeperapi.MethodShutdown, k.shutdown)
	return s
}

// serve answers until it is told to end, and then what it has begun to carry out.
func (k *Keeper) serve(ctx context.Context) error {
	l, err := fdrpc.Listen(filepath.Join(k.conf.RunDir, SocketName), 0o600)
	if err != nil {
		return err
	}
	k.chores.Go(k.collect)
	k.chores.Go(k.watchIdle)
	var served sync.WaitGroup
	served.Go(func() { k.server.Serve(l) })
	k.log.Info("keeper serves", "engine", Version(), "lives", len(k.all()))
	select {
	case <-ctx.Done():
	case <-k.stop:
	}
	k.quit()
	k.server.Refuse(errLeaving)
	l.Close()
	served.Wait()
	k.chores.Wait()
	bounded, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := k.server.Idle(bounded); err != nil {
		return fmt.Errorf("leave: %w", err) // the end of this process ends its connections
	}
	k.server.Close()
	return nil
}

func (k *Keeper) info(context.Context, *fdrpc.Request) (any, []*os.File, error) {
	return keeperapi.Info{
		PID: os.Getpid(), Inode: k.inode, NetworkInode: k.network.inode(), Engine: Version(), Started: k.started,
		Network: filepath.Join(k.conf.RunDir, networkSocket), Cgroup: k.conf.Cgroup, CPU: cpuFeatures(), Shares: Patched,
	}, nil, nil
}

// place is the gate's: it moves the first stage of a sentry.
func (k *Keeper) place(pid int, id string) error {
	l, err := k.find(id)
	if err != nil {
		return err
	}
	return l.group.place(pid)
}

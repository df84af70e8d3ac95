package gvisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
	"cubesandbox/internal/fdrpc"
)

// fakeKeeper speaks the keeper's protocol and holds the keeper's lock. It has the lives
// that it is given, and says that everything has been done.
type fakeKeeper struct {
	*fdrpc.Server
	kills chan string // lives that it was told to end

	mu     sync.Mutex // guards the following
	lives  []keeperapi.Life
	answer map[string]fdrpc.Handler // methods that do something else
}

// fake starts one in this process.
func fake(t *testing.T, dir, version string) *fakeKeeper {
	t.Helper()
	k, end, err := startFake(dir, version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return k
}

func startFake(dir, version string) (_ *fakeKeeper, end func(), err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, nil, err
	}
	lock, err := os.Create(filepath.Join(dir, keeperLock))
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, nil, err
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return nil, nil, err
	}
	k := &fakeKeeper{Server: fdrpc.NewServer(keeperapi.Protocol, keeperapi.Version), kills: make(chan string, 100), answer: map[string]fdrpc.Handler{}}
	info := keeperapi.Info{PID: os.Getpid(), Engine: version, Network: filepath.Join(dir, "network.sock")}
	k.handle(keeperapi.MethodInfo, func(*fdrpc.Request) (any, error) { return info, nil })
	k.handle(keeperapi.MethodList, func(*fdrpc.Request) (any, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return keeperapi.Lives{Lives: k.lives}, nil
	})
	k.handle(keeperapi.MethodKill, func(r *fdrpc.Request) (any, error) {
		var q keeperapi.Kill
		err := r.Decode(&q)
		k.kills <- q.Life
		return nil, err
	})
	k.handle(keeperapi.MethodUsage, func(*fdrpc.Request) (any, error) { return keeperapi.Usage{}, nil })
	for _, method := range []string{keeperapi.MethodShutdown, keeperapi.MethodResume, keeperapi.MethodPause, keeperapi.MethodSave, keeperapi.MethodLabel} {
		k.handle(method, func(*fdrpc.Request) (any, error) { return nil, nil })
	}
	l, err := fdrpc.Listen(filepath.Join(dir, keeperSocket), 0o600)
	if err != nil {
		return nil, nil, err
	}
	var serving sync.WaitGroup
	serving.Go(func() { k.Serve(l) })
	return k, func() { l.Close(); k.Close(); serving.Wait(); lock.Close() }, nil
}

// TestMain is the program of a fake keeper where it is executed as such.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "keeper" {
		os.Exit(beKeeper(os.Args[3]))
	}
	os.Exit(m.Run())
}

// The files in its directory by which a fake program is told what to do.
const (
	gateFile = "gate" // a FIFO: it listens when somebody has opened and closed it
	liesFile = "lies" // it says that it is of another version
)

func beKeeper(dir string) int {
	os.ReadFile(filepath.Join(dir, gateFile))
	version := place{dir: dir}.started()
	if _, err := os.Stat(filepath.Join(dir, liesFile)); err == nil {
		version = "another"
	}
	k, end, err := startFake(dir, version)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	told := make(chan struct{})
	k.on(keeperapi.MethodShutdown, func(context.Context, *fdrpc.Request) error { close(told); return nil })
	<-told
	end()
	return 0
}

// keeperPrograms installs the fake keeper as versions of the engine.
func keeperPrograms(t *testing.T, versions ...string) engines {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	en := engines{t.TempDir()}
	for _, v := range versions {
		if err := os.MkdirAll(filepath.Dir(en.sentry(v)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, en.sentry(v)); err != nil {
			t.Fatal(err)
		}
	}
	return en
}

// handle says what a method does unless on says something else.
func (k *fakeKeeper) handle(method string, f func(*fdrpc.Request) (any, error)) {
	k.Handle(method, func(ctx context.Context, r *fdrpc.Request) (any, []*os.File, error) {
		k.mu.Lock()
		other := k.answer[method]
		k.mu.Unlock()
		if other != nil {
			return other(ctx, r)
		}
		out, err := f(r)
		return out, nil, err
	})
}

// on has a method do something else from now on; nil: what it did at first.
func (k *fakeKeeper) on(method string, f func(context.Context, *fdrpc.Request) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f == nil {
		delete(k.answer, method)
		return
	}
	k.answer[method] = func(ctx context.Context, r *fdrpc.Request) (any, []*os.File, error) { return nil, nil, f(ctx, r) }
}

func (k *fakeKeeper) has(lives ...keeperapi.Life) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lives = lives
}

// shortDir is a directory with a name that leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cube")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// fakeEngine is an engine with a fake keeper of version v1.
func fakeEngine(t *testing.T, budget int64) (*Engine, *fakeKeeper) {
	t.Helper()
	images, err := image.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run := shortDir(t)
	f := fake(t, run, "v1")
	e := &Engine{conf: Config{RunDir: run}, log: slog.New(slog.NewTextHandler(t.Output(), nil)), images: images,
		sandboxes: map[cube.SandboxID]*sandbox{}, byLife: map[string]*sandbox{}, claimed: map[cube.SandboxID]struct{}{},
		dead: map[string]keeperapi.Life{}, restores: make(chan struct{}, 2)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.admission.budget = budget
	k, err := connect(t.Context(), place{dir: run, version: "v1"}, e.died)
	if err != nil {
		t.Fatal(err)
	}
	e.keepers = &keepers{runDir: run, current: k, all: []*keeper{k}}
	e.pools.init(e)
	t.Cleanup(func() {
		e.halt()
		if err := e.keepers.close(); err != nil {
			t.Error(err)
		}
	})
	return e, f
}

// soon waits for something that must come.
func soon[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(5 * time.Second):
		t.Fatalf("%s: not within 5 s", what)
		panic("unreachable")
	}
}

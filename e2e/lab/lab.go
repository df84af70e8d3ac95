// Package lab is an engine for end-to-end tests: on a file system of its own, so
// that it can be full, with the template base, a program inside that holds one of
// everything, faults to bring about, and a leak check around each test.
package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/e2e/leak"
	"cubesandbox/internal/local"
)

// diskSize is that of the state directory's file system, in bytes. It is sparse.
const diskSize = 12 << 30

// Lab is one engine and what belongs to it.
type Lab struct {
	*local.Session
	Where leak.Where
	// Base is the template, Witness an image of it in which the witness runs.
	Base, Witness cube.ImageID

	opt  local.Options
	disk string // the file that the state directory's file system is in
	kind Disk
	log  *os.File
}

// Open makes a lab. budget bounds what sandboxes may take together, in bytes; 0:
// what there is. Close it.
func Open(ctx context.Context, budget int64) (*Lab, error) { return openOn(ctx, budget, Disk{}) }

// openOn is Open on such a disk.
func openOn(ctx context.Context, budget int64, d Disk) (_ *Lab, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("end-to-end tests make sandboxes, which needs root; run them as root: sudo make test")
	}
	if err := sweep(ctx); err != nil {
		return nil, fmt.Errorf("what a killed test left: %w", err)
	}
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), time.Now().UnixNano()%1e6)
	if d.Size == 0 {
		d.Size = diskSize
	}
	l := &Lab{opt: local.Options{RunDir: filepath.Join("/run", name), MemoryBudget: budget}, kind: d}
	if err := l.findPrograms(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.lastWords(), l.removeFiles())
		}
	}()
	if err := l.makeDisk(ctx, filepath.Join(os.TempDir(), name)); err != nil {
		return nil, fmt.Errorf("a file system for the state directory: %w", err)
	}
	if l.log, err = os.OpenFile(filepath.Join(l.opt.RunDir, "engine.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	l.opt.Log = slog.New(slog.NewTextHandler(l.log, nil))
	if l.Session, err = local.Open(ctx, l.opt); err != nil {
		return nil, err
	}
	if err := l.prepare(ctx); err != nil {
		return nil, errors.Join(err, l.Shutdown(ctx))
	}
	return l, nil
}

// prepare makes the two images and finds out what is ours.
func (l *Lab) prepare(ctx context.Context) error {
	img, err := l.Build(ctx, filepath.Join(moduleRoot(), "templates", "base"), false)
	if err != nil {
		return fmt.Errorf("template base: %w", err)
	}
	l.Base = img.ID
	host, err := l.Host(ctx)
	if err != nil {
		return err
	}
	l.Where = leak.Where{RunDir: l.opt.RunDir, StateDir: l.opt.StateDir, Cgroup: host.Cgroup}
	if l.Witness, err = l.saveWitness(ctx); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	return nil
}

// Reopen closes the engine and opens another in its place, as a server that is
// started again does.
func (l *Lab) Reopen(ctx context.Context) error {
	if err := l.Session.Close(); err != nil {
		return err
	}
	return l.Take(ctx)
}

// Take opens an engine where none is open, and uses it once: what it opens when
// it is first used must not look like a leak.
func (l *Lab) Take(ctx context.Context) (err error) {
	if l.Session, err = local.Open(ctx, l.opt); err != nil {
		return err
	}
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Witness})
	if err != nil {
		return err
	}
	_, err = l.Run(ctx, s.ID, "/bin/true")
	return errors.Join(err, l.Engine.Kill(ctx, s.ID))
}

// Shutdown ends everything and says what is left then: nothing but files.
func (l *Lab) Shutdown(ctx context.Context) error {
	if err := l.Engine.Shutdown(ctx); err != nil {
		return errors.Join(err, l.removeFiles())
	}
	empty := leak.State{}
	now, err := leak.Take(leak.Where{RunDir: l.opt.RunDir, Cgroup: l.Where.Cgroup})
	if err == nil {
		var left []string
		for _, line := range leak.Diff(empty, leak.State{"cgroup": now["cgroup"], "socket": now["socket"]}) {
			left = append(left, "after shutdown: "+line)
		}
		if left != nil {
			err = fmt.Errorf("%q", left)
		}
	}
	return errors.Join(err, l.removeFiles())
}

// lastWords is the end of the logs, for an error.
func (l *Lab) lastWords() error {
	var errs []error
	for _, name := range []string{"keeper.log", "network.log"} {
		if b, err := os.ReadFile(filepath.Join(l.opt.RunDir, name)); err == nil && len(b) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s", name, b[max(0, len(b)-1000):]))
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) removeFiles() error {
	l.log.Close() // nil is an error of its own
	return removeLab(l.opt.RunDir, l.opt.StateDir)
}

// moduleRoot is the folder of go.mod, above a test's own.
func moduleRoot() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
	}
	return dir
}

func (l *Lab) findPrograms() error {
	l.opt.BinDir, l.opt.CacheDir = os.Getenv("CUBE_BIN"), os.Getenv("CUBE_CACHE")
	if l.opt.BinDir == "" {
		l.opt.BinDir = filepath.Join(moduleRoot(), "bin")
	}
	if l.opt.CacheDir == "" {
		l.opt.CacheDir = "/var/cache/cube"
	}
	for _, name := range []string{"cube-sentry", "cube-network", "cube-guest.erofs"} {
		if _, err := os.Stat(filepath.Join(l.opt.BinDir, name)); err != nil {
			return fmt.Errorf("%w; build it with make", err)
		}
	}
	return nil
}

// makeDisk mounts a file system of our own as the state directory.
func (l *Lab) makeDisk(ctx context.Context, dir string) error {
	l.opt.StateDir = filepath.Join(dir, "state")
	if err := os.MkdirAll(l.opt.StateDir, 0o711); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(dir, 0o711), os.MkdirAll(l.opt.RunDir, 0o711)); err != nil {
		return err
	}
	l.disk = filepath.Join(dir, "disk")
	if err := l.kind.makeFileSystem(ctx, l.disk); err != nil {
		return err
	}
	return l.kind.mount(ctx, l.disk, l.opt.StateDir)
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.300s", name, err, out)
	}
	return nil
}

// Guard notes what is there and, when the test ends, kills its sandboxes, deletes
// its images, and fails it for everything that is left.
func (l *Lab) Guard(t *testing.T) {
	t.Helper()
	before, err := leak.Take(l.Where)
	if err != nil {
		t.Fatal(err)
	}
	images := l.imageIDs(t)
	t.Cleanup(func() {
		l.clean(t, images)
		if err := leak.Check(l.Where, before, patience); err != nil {
			t.Errorf("left behind:\n%v", err)
		}
	})
}

// Options say where the lab's engine is, for another process that opens it.
func (l *Lab) Options() local.Options { return l.opt }

// patience is how long the leak check waits for what is just going away.
const patience = 3 * time.Second

func (l *Lab) clean(t *testing.T, keep map[cube.ImageID]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(l.Engine.SetPools(ctx, cube.Pools{}), l.Engine.PoolsReady(ctx)); err != nil {
		t.Errorf("empty the pools: %v", err)
	}
	all, err := l.Engine.Sandboxes(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if err := l.Engine.Kill(ctx, s.ID); err != nil {
			t.Errorf("kill %s: %v", s.ID, err)
		}
	}
	for id := range l.imageIDs(t) {
		if !keep[id] {
			if err := l.Images.Delete(id); err != nil {
				t.Errorf("delete %s: %v", id, err)
			}
		}
	}
}

func (l *Lab) imageIDs(t *testing.T) map[cube.ImageID]bool {
	t.Helper()
	all, err := l.Images.Images()
	if err != nil {
		t.Error(err)
	}
	ids := map[cube.ImageID]bool{}
	for _, img := range all {
		ids[img.ID] = true
	}
	return ids
}

// Free is what the state directory's file system has left, in bytes.
func (l *Lab) Free() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(l.opt.StateDir, &st)
	return int64(st.Bavail) * st.Bsize, err
}

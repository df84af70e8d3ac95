package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/bench"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/footprint"
	"cubesandbox/internal/local"
	"cubesandbox/probe"
)

// evict takes the files of an image out of the page cache.
func evict(s *local.Session, id cube.ImageID) error {
	dir := s.Images.Dir(id)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		// What is not written yet stays.
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
		if err != nil {
			return fmt.Errorf("take %s out of the page cache: %w", f.Name(), err)
		}
	}
	return nil
}

// memoryOf is what sandboxes take of the host's memory, in bytes.
func memoryOf(ctx context.Context, s *local.Session, ids ...cube.SandboxID) (int64, error) {
	h, err := s.Host(ctx)
	if err != nil {
		return 0, err
	}
	var pids []int
	for _, id := range ids {
		for _, l := range h.Lives {
			if l.Labels.Sandbox == id && l.Labels.Role == keeperapi.RoleCurrent {
				pids = append(pids, l.PID)
			}
		}
	}
	f, err := footprint.Of(pids...)
	return f.Kept(), err
}

// stockSentry is the sentry of gVisor without our patches, beside the other programs.
const stockSentry = "cube-sentry-stock"

// withStock runs work with an engine of stock gVisor too, which has a state of its own. That
// is always at the same place: what one that was killed has left is ended by the next.
func (a *app) withStock(ctx context.Context, work func(*bench.Config) error) (err error) {
	o := a.options()
	dir := filepath.Join(o.CacheDir, "stock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // sentries, which run as nobody, pass through it
		return err
	}
	bin := filepath.Join(dir, "bin")
	if err := stockPrograms(o.BinDir, bin); err != nil {
		return fmt.Errorf("programs of stock gVisor: %w; make stock builds them", err)
	}
	o.BinDir, o.StateDir, o.RunDir = bin, filepath.Join(dir, "state"), filepath.Join(dir, "run")
	s, err := local.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.Engine.Shutdown(context.WithoutCancel(ctx)))
		if err == nil {
			err = os.RemoveAll(dir)
		}
	}()
	img, err := s.Build(ctx, baseTemplate, false)
	if err != nil {
		return fmt.Errorf("template %s: %w", baseTemplate, err)
	}
	conf, err := a.benchConfig(s, target(s, probe.EngineTarget{Base: img.ID}))
	if err != nil {
		return err
	}
	return work(&conf)
}

// stockPrograms makes a directory of programs in which the sentry is that of stock gVisor.
func stockPrograms(from, to string) error {
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.RemoveAll(to) // links of ours, from a run that was killed
	}
	if err == nil {
		err = os.Mkdir(to, 0o755)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "cube-sentry" || e.Name() == stockSentry {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	path := filepath.Join(from, stockSentry)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return os.Symlink(path, filepath.Join(to, "cube-sentry"))
}

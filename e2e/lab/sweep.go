package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cubesandbox/internal/local"
	"cubesandbox/internal/serve"
)

// prefix begins the names of a lab's two directories; the pid of its test follows.
const prefix = "cube-lab-"

// sweep takes away what tests left that were killed. Tests that start together do so one
// after the other: an engine is ended by one who opens it, and there can be one.
func sweep(ctx context.Context) error {
	lock, err := os.Open("/run")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock /run: %w", err)
	}
	runs, err := filepath.Glob(filepath.Join("/run", prefix+"*"))
	if err != nil {
		return err
	}
	states, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range append(runs, states...) {
		name := filepath.Base(dir)
		if ownerLives(name) {
			continue
		}
		errs = append(errs, sweepOne(ctx, filepath.Join("/run", name), filepath.Join(os.TempDir(), name, "state")))
	}
	return errors.Join(errs...)
}

func ownerLives(name string) bool {
	text, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
	pid, err := strconv.Atoi(text)
	return err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func sweepOne(ctx context.Context, runDir, stateDir string) error {
	if err := killBooted(runDir, stateDir); err != nil {
		return err
	}
	if _, err := serve.Stop(ctx, runDir); err != nil {
		return err
	}
	o := local.Options{RunDir: runDir, StateDir: stateDir, BinDir: filepath.Join(moduleRoot(), "bin")}
	if _, err := local.Shutdown(ctx, o); err != nil {
		return fmt.Errorf("end the engine of %s: %w", runDir, err)
	}
	return removeLab(runDir, stateDir)
}

// removeLab takes a lab's mounts and files away.
func removeLab(runDir, stateDir string) error {
	var errs []error
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // the last mounted first
		f := strings.Fields(lines[i])
		if len(f) > 1 && (f[1] == stateDir || strings.HasPrefix(f[1], filepath.Dir(stateDir)+"/")) {
			// Busy for as long as the last process below is going away.
			errs = append(errs, Until(5*time.Second, "unmount "+f[1], func() error { return syscall.Unmount(f[1], 0) }))
		}
	}
	if errors.Join(errs...) == nil { // never remove what is still mounted
		errs = append(errs, os.RemoveAll(filepath.Dir(stateDir)))
	}
	if err := os.RemoveAll(runDir); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

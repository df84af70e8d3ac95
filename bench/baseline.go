package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Baseline restores the same guest with the stock runsc command line: the same
// two file systems, the same program as process 1, a restore into the same
// platform. It has no network, which spares it work, and its restore counts as
// done when the command has returned, where the engine's must have an answer of
// the agent: both are in its favour.
type Baseline struct {
	// Runsc is the program.
	Runsc string
	// Dir is a directory of its own, which Close removes.
	Dir string
	// Spec is what the engine's sandboxes run, with Rootfs and Agent being the
	// paths of the two EROFS images.
	Spec          *specs.Spec
	Rootfs, Agent string

	cgroup *os.File // everything runs in it, so that its CPU time can be read
	image  string
	n      int
}

// Prepare boots the guest once and saves it.
func (r *Baseline) Prepare(ctx context.Context) error {
	v2 := CgroupV2()
	if v2 == "" {
		return errors.New("no cgroup version 2 hierarchy is mounted, so the CPU time of runsc cannot be read")
	}
	group := filepath.Join(v2, fmt.Sprintf("cube-bench-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	var err error
	if r.cgroup, err = os.Open(group); err != nil {
		return err
	}
	if err := r.writeBundle(); err != nil {
		return err
	}
	id := r.next()
	if err := r.runsc(ctx, "run", "--detach", "--bundle", r.bundle(), id); err != nil {
		return err
	}
	// The agent answers on its port.
	err = r.runsc(ctx, "exec", id, "/usr/bin/curl", "--silent", "--fail", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", "http://127.0.0.1:49983/health")
	if err == nil {
		r.image = filepath.Join(r.Dir, "image")
		err = r.runsc(ctx, "checkpoint", "--image-path", r.image, id)
	}
	return errors.Join(err, r.delete(ctx, id))
}

func (r *Baseline) bundle() string { return filepath.Join(r.Dir, "bundle") }

// writeBundle makes an OCI bundle of the engine's spec.
func (r *Baseline) writeBundle() error {
	s := *r.Spec
	s.Annotations = maps.Clone(s.Annotations)
	for _, key := range []string{"dev.gvisor.spec.rootfs.source"} {
		s.Annotations[key] = r.Rootfs
	}
	s.Mounts = nil
	for _, m := range r.Spec.Mounts {
		if m.Type == "erofs" {
			m.Source = r.Agent
		}
		s.Mounts = append(s.Mounts, m)
	}
	empty := filepath.Join(r.Dir, "empty")
	s.Root = &specs.Root{Path: empty}
	for _, dir := range []string{empty, r.bundle()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.bundle(), "config.json"), b, 0o644)
}

func (r *Baseline) next() string {
	r.n++
	return fmt.Sprintf("bench-%08d", r.n)
}

// runsc runs one command. Its output goes to a file: a sandbox that it leaves
// behind would hold a pipe open.
func (r *Baseline) runsc(ctx context.Context, args ...string) error {
	log, err := os.OpenFile(filepath.Join(r.Dir, "output"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	base := []string{"--root=" + filepath.Join(r.Dir, "root"), "--platform=systrap", "--network=none", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "--directfs=false"}
	cmd := exec.CommandContext(ctx, r.Runsc, append(base, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(r.cgroup.Fd())}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("runsc %s: %w: %.500s", args[0], err, said)
	}
	return nil
}

func (r *Baseline) delete(ctx context.Context, id string) error {
	return r.runsc(context.WithoutCancel(ctx), "delete", "--force", id)
}

// restore measures one restore: into a container that exists, or from nothing.
func (r *Baseline) restore(ctx context.Context, created bool) (s sample, err error) {
	id := r.next()
	defer func() { err = errors.Join(err, r.delete(ctx, id)) }()
	if created {
		if err := r.runsc(ctx, "create", "--bundle", r.bundle(), id); err != nil {
			return s, err
		}
	}
	before, err := cgroupCPU(r.cgroup.Name())
	if err != nil {
		return s, err
	}
	began := time.Now()
	if err := r.runsc(ctx, "restore", "--detach", "--bundle", r.bundle(), "--image-path", r.image, id); err != nil {
		return s, err
	}
	s.wall = time.Since(began)
	after, err := cgroupCPU(r.cgroup.Name())
	s.cpu = after - before
	return s, err
}

// Close removes everything. It ends what runs in the cgroup.
func (r *Baseline) Close() error {
	if r.cgroup == nil {
		return os.RemoveAll(r.Dir)
	}
	group := r.cgroup.Name()
	err := os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0)
	r.cgroup.Close()
	return errors.Join(err, removeWhenEmpty(group), unmountBelow(r.Dir), os.RemoveAll(r.Dir))
}

// removeWhenEmpty waits for the last process of a cgroup.
func removeWhenEmpty(dir string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := syscall.Rmdir(dir)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
		<-tick.C
	}
}

// unmountBelow takes away what runsc leaves mounted in its root directory.
func unmountBelow(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			err = errors.Join(err, syscall.Unmount(f[4], syscall.MNT_DETACH))
		}
	}
	return err
}

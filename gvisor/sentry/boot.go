package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/sandbox"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// boot starts a sentry that waits to be told what to run. After a failure
// nothing of it is left.
func (k *Keeper) boot(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var b keeperapi.Boot
	if err := r.Decode(&b); err != nil {
		return nil, nil, err
	}
	if err := checkBoot(b, len(r.Files)); err != nil {
		return nil, nil, err
	}
	l := &life{
		dir:   filepath.Join(k.livesDir(), b.Life),
		group: &group{h: k.cgroups, life: b.Life},
		gone:  make(chan struct{}), released: make(chan struct{}),
		rec: record{Life: keeperapi.Life{
			Life: b.Life, State: keeperapi.StateBooted, Limits: b.Limits, Rootfs: b.Rootfs, Agent: b.Agent,
			Labels: b.Labels, Started: time.Now(),
		}},
	}
	l.booting.Add(1)
	defer l.booting.Done()
	if err := k.reserve(l); err != nil {
		return nil, nil, err
	}
	files := r.Files
	r.Files = nil // sandbox.New closes them
	if err := k.startSentry(l, b, files); err != nil {
		k.forget(l)
		return nil, nil, err
	}
	return l.view(), nil, nil
}

func checkBoot(b keeperapi.Boot, files int) error {
	if len(b.Life) != 32 || !hexOnly(b.Life) {
		return fdrpc.Errorf(keeperapi.CodeInvalid, "life %q: want 32 hex digits", b.Life)
	}
	if len(b.Rootfs) != 64 || !hexOnly(b.Rootfs) || len(b.Agent) != 64 || !hexOnly(b.Agent) {
		return fdrpc.Errorf(keeperapi.CodeInvalid, "boot %s: rootfs and agent are named by SHA-256 in hex", b.Life)
	}
	if files != 3 {
		return fdrpc.Errorf(keeperapi.CodeInvalid, "boot %s: want 3 files (rootfs, agent, filestore), got %d", b.Life, files)
	}
	l := b.Limits
	if l.MemoryMiB < 128 || l.MemoryMiB > 1<<20 || l.CPUs < 1 || l.CPUs > 128 || l.DiskMiB < 64 || l.DiskMiB > 1<<24 || l.Pids < 16 || l.Pids > 1<<22 {
		return fdrpc.Errorf(keeperapi.CodeInvalid, "boot %s: limits %+v are out of range", b.Life, l)
	}
	return nil
}

func hexOnly(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// startSentry makes the group, the process and its watcher. The files become gVisor's.
func (k *Keeper) startSentry(l *life, b keeperapi.Boot, files []*os.File) (err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close() // closing twice does no harm
			}
			if l.filestore != nil {
				l.filestore.Close()
			}
			os.RemoveAll(l.dir)
		}
	}()
	if l.filestore, err = duplicate(files[2]); err != nil {
		return err
	}
	spec := guestSpec(b)
	js, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(l.dir, specFile), js, 0o600); err != nil {
		return err
	}
	if err := l.group.create(b.Limits); err != nil {
		return fmt.Errorf("cgroup of %s: %w", b.Life, err)
	}
	if b.Labels.Role == keeperapi.RolePool {
		if err := l.group.share(poolShares); err != nil {
			return fmt.Errorf("cgroup of %s: %w", b.Life, err)
		}
	}
	s, err := k.newSandbox(l, b, files)
	if err != nil {
		l.group.kill()
		err = fmt.Errorf("boot %s: %w%s", b.Life, err, because(lastWords(l.dir)))
		return errors.Join(err, l.group.waitEmpty(5*time.Second), l.group.remove())
	}
	return k.adoptProcess(l, s.Pid.Load(), s.ControlSocketPath, true)
}

func because(words string) string {
	if words == "" {
		return ""
	}
	return " (" + words + ")"
}

// newSandbox asks gVisor for the process.
func (k *Keeper) newSandbox(l *life, b keeperapi.Boot, files []*os.File) (*sandbox.Sandbox, error) {
	conf, err := sentryConfig(k.sentryDir(), l.dir)
	if err != nil {
		return nil, err
	}
	dir, err := l.group.open()
	if err != nil {
		return nil, err
	}
	if dir != nil {
		defer dir.Close()
	}
	return sandbox.New(conf, &sandbox.Args{
		ID:                  b.Life,
		Spec:                guestSpec(b),
		BundleDir:           l.dir,
		IOFiles:             files[:2],
		GoferFilestoreFiles: files[2:3],
		GoferMountConfs:     mountConfs(b),
		Cgroup:              shape{limits: b.Limits},
		CloneIntoCgroupFD:   dir,
	})
}

// adoptProcess takes up a sentry that runs: its pidfd, its record, its watcher.
func (k *Keeper) adoptProcess(l *life, pid int, control string, child bool) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("pidfd of sentry %d: %w", pid, err)
	}
	l.pidfd = os.NewFile(uintptr(fd), "pidfd")
	st, err := readStat(pid)
	if err != nil {
		return err
	}
	if err := l.update(func(r *record) { r.PID, r.Start, r.Control = pid, st.start, control }); err != nil {
		return err
	}
	k.wg.Go(func() {
		l.watchDeath(child)
		k.died(l)
	})
	return nil
}

// duplicate returns another descriptor of the same open file.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	var derr error
	if err := raw.Control(func(fd uintptr) { n, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err != nil || derr != nil {
		return nil, errors.Join(err, derr)
	}
	return os.NewFile(uintptr(n), f.Name()), nil
}

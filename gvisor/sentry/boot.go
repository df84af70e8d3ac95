package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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
	l := k.newLife(b.Life)
	l.rec = record{Life: keeperapi.Life{
		Life: b.Life, State: keeperapi.StateBooted, Limits: b.Limits, Rootfs: b.Rootfs, Agent: b.Agent,
		Labels: b.Labels, Started: time.Now(), Engine: Version(),
	}}
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
	k.litterLeft()
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
	return checkIdentity(b.Life, b.Labels.Identity)
}

func hexOnly(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// startSentry makes the group, the process and its watcher. The files become
// gVisor's. After a failure nothing is left.
func (k *Keeper) startSentry(l *life, b keeperapi.Boot, files []*os.File) (err error) {
	pid := 0
	defer func() {
		if err == nil {
			return
		}
		for _, f := range files {
			f.Close() // closing twice does no harm
		}
		err = errors.Join(err, k.undoBoot(l, pid))
	}()
	filestore, err := duplicate(files[2])
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.filestore, l.rec.Filestore = filestore, idOf(filestore)
	l.mu.Unlock()
	js, err := json.Marshal(guestSpec(b))
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
	var side sync.WaitGroup
	side.Go(k.cgroups.ready)
	defer side.Wait()
	s, err := k.newSandbox(l, b, files)
	if err != nil {
		return fmt.Errorf("boot %s: %w%s", b.Life, err, because(lastWords(l.dir)))
	}
	pid = s.Pid.Load()
	return k.adoptProcess(l, pid, 0, s.ControlSocketPath, true)
}

// undoBoot removes a life that has no watcher. pid is its process, or 0.
func (k *Keeper) undoBoot(l *life, pid int) error {
	l.cancel()
	l.group.kill()
	if pid > 0 {
		unix.Kill(pid, unix.SIGKILL) // our child, and not reaped: no other has this number
		reap(pid)
	}
	l.mu.Lock()
	for _, f := range []*os.File{l.filestore, l.pidfd} {
		if f != nil {
			f.Close()
		}
	}
	l.mu.Unlock()
	return k.scrap(l.id)
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
// start is what is known of its start time, or 0. After a failure there is no watcher.
func (k *Keeper) adoptProcess(l *life, pid int, start uint64, control string, child bool) error {
	pidfd, st, err := openProcess(pid, start)
	if err != nil {
		return fmt.Errorf("sentry %d: %w", pid, err)
	}
	l.mu.Lock()
	l.pidfd = pidfd
	if l.filestore == nil {
		if l.filestore, err = findFile(pid, l.rec.Filestore); err != nil {
			k.log.Warn("the files of a life cannot be measured", "life", l.id, "error", err)
		}
	}
	l.mu.Unlock()
	if err := l.update(func(r *record) { r.PID, r.Start, r.Control = pid, st.start, control }); err != nil {
		return err
	}
	k.wg.Go(func() {
		l.watchDeath(pidfd, pid, child)
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
	n, err := duplicateFD(raw)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), f.Name()), nil
}

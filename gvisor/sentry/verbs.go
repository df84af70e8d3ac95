package sentry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/network"
)

// imageFiles is how many files a saved state has at least: kernel, page metadata, pages,
// in the order that gVisor wants.
const imageFiles = 3

// ref reads a request that names a life.
func (k *Keeper) ref(r *fdrpc.Request, files int) (*life, error) {
	var q keeperapi.Ref
	if err := r.Decode(&q); err != nil {
		return nil, err
	}
	if len(r.Files) != files {
		return nil, fdrpc.Errorf(keeperapi.CodeInvalid, "life %s: want %d files, got %d", q.Life, files, len(r.Files))
	}
	return k.find(q.Life)
}

func (k *Keeper) start(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := k.ref(r, 0)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateBooted); err != nil {
		return nil, nil, err
	}
	if err := k.plug(l, false); err != nil {
		return nil, nil, err
	}
	id := l.id
	if err := l.call(boot.ContMgrRootContainerStart, &id, nil); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", id, err)
	}
	return nil, nil, l.started()
}

// started notes that tasks run.
func (l *life) started() error {
	return l.note(func(r *record) {
		if r.State == keeperapi.StateBooted {
			r.State = keeperapi.StateRunning
		}
	})
}

// plug gives a sentry its NIC and the other end to the network process.
func (k *Keeper) plug(l *life, restore bool) error {
	guest, host, err := network.NewNIC()
	if err != nil {
		return err
	}
	defer guest.Close()
	l.mu.Lock()
	old := l.nic
	l.nic = host
	l.mu.Unlock()
	if old != nil {
		old.Close() // of a start that failed
	}
	if err := k.network.plug(l, host); err != nil {
		return fmt.Errorf("plug the NIC: %w", err)
	}
	if err := l.call(boot.ContMgrSetNetworkArgs, linkArgs(guest, restore), nil); err != nil {
		return fmt.Errorf("set network: %w", err)
	}
	return nil
}

func (k *Keeper) restore(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.Restore
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	want := imageFiles + len(q.Bases)
	if q.Sources {
		want++
	}
	l, err := k.ref(r, want)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateBooted); err != nil {
		return nil, nil, err
	}
	if err := l.noteBases(q); err != nil {
		return nil, nil, err
	}
	if err := k.plug(l, true); err != nil {
		return nil, nil, err
	}
	o := boot.RestoreOpts{HavePagesFile: true, Background: true}
	o.FilePayload.Files = r.Files
	if err := share(&o, q); err != nil {
		return nil, nil, err
	}
	if err := l.call(boot.ContMgrRestore, &o, nil); err != nil {
		return nil, nil, imageError(l, err)
	}
	return nil, nil, l.started()
}

// goOn has the agent go on if it was stopped by a signal when it was saved: it could
// not answer, and nobody else can reach it. The sentry is slow to take this call, for the
// sandbox has begun to work: whoever waits for the agent does not wait for it.
func (l *life) goOn() error {
	return l.call(boot.ContMgrSignal, &boot.SignalArgs{CID: l.id, Signo: int32(unix.SIGCONT), Mode: boot.DeliverToProcess}, nil)
}

// waitRestore holds no lock: it lasts as long as the pages take to load, and
// whatever the sentry does meanwhile it does to a life that is not handed out yet.
func (k *Keeper) waitRestore(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := k.ref(r, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := l.need(keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	if err := l.goOn(); err != nil {
		return nil, nil, imageError(l, err)
	}
	if err := l.call(boot.ContMgrWaitRestore, nil, nil); err != nil {
		return nil, nil, imageError(l, err)
	}
	return nil, nil, nil
}

// imageError says that an image was refused, with the sentry's own words: its
// answer is often no more than a closed connection. A life that was ended by
// something else says nothing of the image.
func imageError(l *life, err error) error {
	if fdrpc.Code(err) == keeperapi.CodeDead {
		if d := l.record().Death; d.Reason != cube.DeathCrash && d.Reason != cube.DeathExit {
			return err
		}
	} else if errors.Is(err, errNoAnswer) {
		return err
	}
	return fdrpc.Errorf(keeperapi.CodeImage, "restore %s: %v%s", l.id, err, because(lastWords(l.dir)))
}

// saveError tells a full disk, and what a process has open that cannot be saved, from
// everything else: of the sentry's error only the text arrives. Where the sentry fell over
// something while it saved, that has its stack, which is for nobody outside.
func saveError(err error) error {
	if _, why, ok := strings.Cut(err.Error(), "save refused: "); ok {
		return fdrpc.Errorf(keeperapi.CodeState, "it cannot be saved: %s; have the process close it, or end it, and save again", why)
	}
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		if strings.Contains(err.Error(), full.Error()) {
			// The sentry's own text has the stack of whoever was writing.
			line, _, _ := strings.Cut(err.Error(), "\n")
			return fdrpc.Errorf(keeperapi.CodeNoSpace, "save: %s", strings.TrimSuffix(line, ":"))
		}
	}
	if line, _, ok := strings.Cut(err.Error(), "\ngoroutine "); ok {
		return fmt.Errorf("save: %s", strings.TrimRight(line, ":\n"))
	}
	return fmt.Errorf("save: %w", err)
}

func (k *Keeper) save(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.Save
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	want := imageFiles
	if q.Base != "" {
		want++
	}
	l, err := k.ref(r, want)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	// Never with Resume false: that ends the sentry even when the save has failed.
	o := control.SaveOpts{Resume: true, HavePagesFile: true, Metadata: map[string]string{"compression": "none"}}
	o.FilePayload.Files = r.Files
	if err := saveApart(&o, q); err != nil {
		return nil, nil, err
	}
	t := time.Now()
	if err := l.call(boot.ContMgrCheckpoint, &o, nil); err != nil {
		return nil, nil, saveError(err)
	}
	return keeperapi.Saved{Wall: time.Since(t)}, nil, nil
}

func (k *Keeper) label(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.Label
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	if err := checkIdentity(q.Life, q.Labels.Identity); err != nil {
		return nil, nil, err
	}
	l, err := k.find(q.Life)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateBooted, keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	claimed := l.view().Labels.Role == keeperapi.RolePool && q.Labels.Role != keeperapi.RolePool
	if err := l.update(func(r *record) {
		if r.Labels = q.Labels; claimed {
			r.Started = time.Now()
		}
	}); err != nil {
		return nil, nil, err
	}
	if claimed {
		if err := l.group.share(fullShares); err != nil {
			return nil, nil, err
		}
	}
	if q.Resume {
		if err := l.turn(keeperapi.StatePaused, keeperapi.StateRunning, boot.ContMgrResume); err != nil {
			return nil, nil, err
		}
	}
	return l.view(), nil, nil
}

func (k *Keeper) usage(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := k.ref(r, 0)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	if err := l.need(keeperapi.StateRunning, keeperapi.StatePaused); err != nil {
		return nil, nil, err
	}
	var u control.MemoryUsage
	if err := l.call(boot.UsageCollect, &control.MemoryUsageOpts{Full: true}, &u); err != nil {
		return nil, nil, fmt.Errorf("usage: %w", err)
	}
	pages, err := sharedPages(l)
	if err != nil {
		return nil, nil, fmt.Errorf("usage: %w", err)
	}
	return l.measure(u, pages), nil, nil
}

// shared is what a sentry has in the pages of images, in bytes.
type shared struct {
	memory, files uint64
	// counted is how much of its files it counts as memory.
	counted uint64
}

// measure adds to what a sentry says of itself what the host knows. No sentry can
// say more than the host lets it have.
func (l *life) measure(u control.MemoryUsage, pages shared) keeperapi.Usage {
	limits := l.record().Limits
	most := hostLimit(limits)
	out := keeperapi.Usage{Usage: cube.Usage{HostMemory: min(max(l.group.memory(), 0), most), CPU: l.group.cpu()}}
	for _, part := range []uint64{u.System, u.Anonymous, u.PageCache, u.Tmpfs} {
		out.GuestMemory = min(out.GuestMemory+int64(min(part, uint64(most))), most)
	}
	out.GuestMemory -= int64(min(pages.counted, uint64(out.GuestMemory)))
	out.SharedMemory = int64(min(pages.memory, uint64(out.GuestMemory)))
	out.SharedFiles = int64(min(pages.files, uint64(limits.DiskMiB<<20)))
	l.mu.Lock()
	f := l.filestore
	l.mu.Unlock()
	if f != nil {
		out.GuestFiles = min(max(allocated(f), 0), limits.DiskMiB<<20)
	}
	out.CommittedBytes = out.GuestMemory + out.GuestFiles + out.SharedFiles
	return out
}

func (k *Keeper) kill(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q keeperapi.Kill
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	l, err := k.find(q.Life)
	if err != nil {
		return nil, nil, nil // gone is what was asked for
	}
	reason := q.Reason
	if reason == "" {
		reason = cube.DeathKilled
	}
	return nil, nil, k.end(l, reason, q.Forget)
}

// end kills a life that may be dead already, and forgets it if asked.
func (k *Keeper) end(l *life, reason cube.DeathReason, forget bool) error {
	l.booting.Wait()
	if _, err := k.find(l.id); err != nil {
		return nil // it did not boot
	}
	k.network.unplug(l.id)
	if err := l.kill(reason); err != nil {
		return err
	}
	<-l.released
	if !forget {
		return nil
	}
	k.forget(l)
	return os.RemoveAll(l.dir)
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/agentclient"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/internal/timing"
	"cubesandbox/network/api"
)

// life is one sentry, and the keeper that has it.
type life struct {
	id string
	k  *keeper
}

// call asks the keeper for something that is done to this life.
func (l life) call(ctx context.Context, method string, files []*os.File, out any) error {
	return l.k.call(ctx, method, keeperapi.Ref{Life: l.id}, files, out)
}

// dial connects to a port in it.
func (l life) dial(ctx context.Context, port uint16, via api.Via) (net.Conn, error) {
	return l.k.net.Dial(ctx, api.Dial{Life: l.id, Port: port, Via: via})
}

// shape is what a sentry must be, and have been booted with, to take an image.
type shape struct {
	engine, rootfs, agent string
	limits                cube.Limits
}

func shapeOf(im cube.Image) shape { return shape{im.Engine, im.Rootfs, im.Agent, im.Limits} }

// bootLife starts a sentry that waits. The keeper is that of the shape's version.
func (e *Engine) bootLife(ctx context.Context, k *keeper, sh shape, labels keeperapi.Labels) (life, error) {
	rootfs, err := e.images.OpenRootfs(sh.rootfs)
	if errors.Is(err, cube.ErrNotFound) && labels.Image != "" { // of an image that there is
		return life{}, &cube.CorruptError{Image: labels.Image, File: "root file system " + sh.rootfs, Detail: "it is missing"}
	}
	if err != nil {
		return life{}, err
	}
	defer rootfs.Close()
	agent, err := e.images.OpenRootfs(sh.agent)
	if errors.Is(err, cube.ErrNotFound) { // of an image that there is
		return life{}, fmt.Errorf("the agent that it was made with is gone: %v: %w", err, cube.ErrIncompatible)
	}
	if err != nil {
		return life{}, err
	}
	defer agent.Close()
	filestore, err := e.newFilestore()
	if err != nil {
		return life{}, err
	}
	defer filestore.Close()
	l := life{randomHex(16), k}
	b := keeperapi.Boot{Life: l.id, Limits: sh.limits, Rootfs: sh.rootfs, Agent: sh.agent, Labels: labels}
	if err := k.call(ctx, keeperapi.MethodBoot, b, []*os.File{rootfs, agent, filestore}, nil); err != nil {
		// The answer may have been lost, and the life not.
		if !errors.Is(err, cube.ErrInvalid) && !errors.Is(err, cube.ErrExists) {
			e.bury(l)
		}
		return life{}, fmt.Errorf("boot: %w", err)
	}
	return l, nil
}

// newFilestore makes the file behind a writable layer. It has no name: its space
// is free as soon as the sentry is gone, whatever happens to us.
func (e *Engine) newFilestore() (*os.File, error) {
	dir := filepath.Join(e.conf.StateDir, "disks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "filestore"), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("writable layer: %w", err)
	}
	return namelessFile(dir)
}

// diskPrefix begins the names that files behind writable layers have for a moment.
const diskPrefix = "disk-"

// namelessFile is for file systems that cannot make a file without a name.
func namelessFile(dir string) (*os.File, error) {
	if err := sweepDisks(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, diskPrefix)
	if err != nil {
		return nil, fmt.Errorf("writable layer: %w", err)
	}
	return f, gone(os.Remove(f.Name()))
}

// sweepDisks takes their names from the files of whoever was ended in that moment.
// Somebody else's that has its moment now loses it a little earlier.
func sweepDisks(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, diskPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, gone(os.Remove(path)))
	}
	return err
}

// gone makes a success of removing what was removed by somebody else.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// endLife ends a life and forgets it. It does not give up when a context ends. Who has
// no use for the error calls bury.
func (e *Engine) endLife(l life, reason cube.DeathReason) error {
	e.lastEvent.Delete(l.id)
	defer func() {
		e.mu.Lock()
		delete(e.dead, l.id)
		e.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	kill := func() error {
		return l.k.call(ctx, keeperapi.MethodKill, keeperapi.Kill{Life: l.id, Reason: reason, Forget: true}, nil, nil)
	}
	err := kill()
	if errors.Is(err, fdrpc.ErrClosed) { // the keeper has died; the next one has taken the life up
		err = kill()
	}
	if err != nil {
		e.log.Error("a life could not be ended", "life", l.id, "error", err)
		return err
	}
	e.freeBases()
	return nil
}

// label writes labels down.
func (l life) label(ctx context.Context, q keeperapi.Label, out *keeperapi.Life) error {
	q.Life = l.id
	if out == nil {
		out = new(keeperapi.Life)
	}
	return l.k.call(ctx, keeperapi.MethodLabel, q, nil, out)
}

// makeCurrent labels a life as that of its sandbox.
func (l life) makeCurrent(ctx context.Context, labels keeperapi.Labels) (keeperapi.Life, error) {
	labels.Role = keeperapi.RoleCurrent
	var v keeperapi.Life
	err := l.label(ctx, keeperapi.Label{Labels: labels}, &v)
	return v, err
}

func (l life) thaw(ctx context.Context) error { return l.call(ctx, keeperapi.MethodResume, nil, nil) }

func (l life) freeze(ctx context.Context) error { return l.call(ctx, keeperapi.MethodPause, nil, nil) }

func (l life) usage(ctx context.Context) (keeperapi.Usage, error) {
	var u keeperapi.Usage
	err := l.call(ctx, keeperapi.MethodUsage, nil, &u)
	return u, err
}

// restoreLife loads an image into a booted sentry and returns when every page has
// been read and the agent has been told who it is: only then is it a restore.
func (e *Engine) restoreLife(ctx context.Context, l life, im cube.Image, files *image.Files, who agentapi.Configure) error {
	defer timing.Phase(ctx, "restore")()
	turn, err := e.takeTurn(ctx)
	if err != nil {
		return err
	}
	turn = sync.OnceFunc(turn)
	defer turn()
	return e.loadLife(ctx, l, im, files, who, turn)
}

// hooksGrace is how long after its pages were read a restore keeps its turn: by then
// the agent has answered, unless programs inside are at work on hooks of theirs.
const hooksGrace = 500 * time.Millisecond

// takeTurn waits until fewer restores than processors are at work.
func (e *Engine) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case e.restores <- struct{}{}:
		return func() { <-e.restores }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loadLife is restoreLife for whoever has a turn, or needs none. It calls turn, which
// ends that, when nothing is left but to wait for programs inside; harmless when it
// has ended before.
func (e *Engine) loadLife(ctx context.Context, l life, im cube.Image, files *image.Files, who agentapi.Configure, turn func()) error {
	if l.k.info.Shares {
		e.readAhead(files)
	}
	if err := l.load(ctx, files, e.early.of(im.Base, im.Bases)); err != nil {
		return fmt.Errorf("restore %s: %w", im.ID, err)
	}
	loaded := make(chan error, 1)
	go func() {
		err := l.call(ctx, keeperapi.MethodWaitRestore, nil, nil)
		time.AfterFunc(hooksGrace, turn)
		loaded <- err
	}()
	who.SavedUnixNano = im.Created.UnixNano()
	who.Restored = !who.Spare
	told := e.configure(ctx, l, who)
	if err := <-loaded; err != nil {
		return fmt.Errorf("restore %s: %w", im.ID, err)
	}
	if told != nil {
		return fmt.Errorf("restore %s: %w", im.ID, told)
	}
	if tells(im.Kind, cube.SandboxID(who.SandboxID)) {
		e.noteEarly(l, im.Base, false)
	}
	return nil
}

// identify is what the agent of a life is told.
func identify(id cube.SandboxID, gen cube.Generation, who cube.Identity, l cube.Limits) agentapi.Configure {
	host := who.Hostname
	if host == "" {
		host = id.Hostname()
	}
	return agentapi.Configure{
		Version: agentapi.Version, SandboxID: string(id), Generation: uint64(gen), Hostname: host,
		Env: who.Env, AccessToken: who.AccessToken, User: who.User, MemoryBytes: l.MemoryMiB << 20, Pids: l.Pids,
	}
}

// agentTime bounds how long an agent may take to answer, in a restored life.
const agentTime = 20 * time.Second

// configureTime bounds how long it may take until it has told everybody inside: hooks
// have a time limit of their own, and an init that does not answer is ended after 30 s.
const configureTime = agentTime + agentapi.HooksTime + 30*time.Second

// configure tells the agent of a life who it is.
func (e *Engine) configure(ctx context.Context, l life, c agentapi.Configure) error {
	return e.configureBy(ctx, l, l.control(), c)
}

// configureBy does so over a connection that dial gives.
func (e *Engine) configureBy(ctx context.Context, l life, dial agentclient.Dialer, c agentapi.Configure) error {
	defer timing.Phase(ctx, "agent")()
	ctx, cancel := context.WithTimeout(ctx, configureTime)
	defer cancel()
	c.TimeUnixNano = time.Now().UnixNano()
	got, err := agentclient.SendConfigure(ctx, dial, c)
	if err == nil {
		e.lastEvent.Store(l.id, got.LastEvent)
		return nil
	}
	if isRefused(err) {
		return err // it is there and does not listen yet
	}
	// An agent that is not there any more cannot say why; its keeper can.
	if _, dead := l.usage(context.WithoutCancel(ctx)); errors.Is(dead, cube.ErrDead) {
		return dead
	}
	return err
}

// control dials the agent's control port.
func (l life) control() agentclient.Dialer {
	return func(ctx context.Context, port uint16) (net.Conn, error) {
		return l.k.net.Dial(ctx, api.Dial{Life: l.id, Port: port, Via: api.ViaDirect, Control: true})
	}
}

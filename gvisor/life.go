package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/agentclient"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
	"cubesandbox/internal/timing"
	"cubesandbox/network/api"
)

// shape is what a sentry must have been booted with to take an image.
type shape struct {
	rootfs, agent string
	limits        cube.Limits
}

func shapeOf(im cube.Image) shape { return shape{im.Rootfs, im.Agent, im.Limits} }

// bootLife starts a sentry that waits.
func (e *Engine) bootLife(ctx context.Context, sh shape, labels keeperapi.Labels) (string, error) {
	rootfs, err := e.images.OpenRootfs(sh.rootfs)
	if err != nil {
		return "", err
	}
	defer rootfs.Close()
	agent, err := e.images.OpenRootfs(sh.agent)
	if err != nil {
		return "", err
	}
	defer agent.Close()
	filestore, err := e.newFilestore()
	if err != nil {
		return "", err
	}
	defer filestore.Close()
	life := randomHex(16)
	b := keeperapi.Boot{Life: life, Limits: sh.limits, Rootfs: sh.rootfs, Agent: sh.agent, Labels: labels}
	if err := e.keeper.call(ctx, keeperapi.MethodBoot, b, []*os.File{rootfs, agent, filestore}, nil); err != nil {
		// The answer may have been lost, and the life not.
		if !errors.Is(err, cube.ErrInvalid) && !errors.Is(err, cube.ErrExists) {
			e.bury(life)
		}
		return "", fmt.Errorf("boot: %w", err)
	}
	return life, nil
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
	f, err := os.CreateTemp(dir, "disk-")
	if err != nil {
		return nil, fmt.Errorf("writable layer: %w", err)
	}
	return f, os.Remove(f.Name())
}

// endLife ends a life and forgets it. It does not give up when a context ends.
func (e *Engine) endLife(life string, reason cube.DeathReason) error {
	e.lastEvent.Delete(life)
	defer func() {
		e.mu.Lock()
		delete(e.dead, life)
		e.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := e.keeper.call(ctx, keeperapi.MethodKill, keeperapi.Kill{Life: life, Reason: reason, Forget: true}, nil, nil)
	if err != nil {
		e.log.Error("a life could not be ended", "life", life, "error", err)
	}
	return err
}

func (e *Engine) thaw(ctx context.Context, life string) error {
	return e.keeper.call(ctx, keeperapi.MethodResume, keeperapi.Ref{Life: life}, nil, nil)
}

func (e *Engine) freeze(ctx context.Context, life string) error {
	return e.keeper.call(ctx, keeperapi.MethodPause, keeperapi.Ref{Life: life}, nil, nil)
}

func (e *Engine) lifeUsage(ctx context.Context, life string) (keeperapi.Usage, error) {
	var u keeperapi.Usage
	err := e.keeper.call(ctx, keeperapi.MethodUsage, keeperapi.Ref{Life: life}, nil, &u)
	return u, err
}

// restoreLife loads an image into a booted sentry and returns when every page has
// been read and the agent has been told who it is: only then is it a restore.
func (e *Engine) restoreLife(ctx context.Context, life string, im cube.Image, files []*os.File, who agentapi.Configure) error {
	defer timing.Phase(ctx, "restore")()
	turn, err := e.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer turn()
	return e.loadLife(ctx, life, im, files, who)
}

// takeTurn waits until fewer restores than processors are at work.
func (e *Engine) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case e.restores <- struct{}{}:
		return func() { <-e.restores }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loadLife is restoreLife for whoever has a turn, or needs none.
func (e *Engine) loadLife(ctx context.Context, life string, im cube.Image, files []*os.File, who agentapi.Configure) error {
	ref := keeperapi.Ref{Life: life}
	if err := e.keeper.call(ctx, keeperapi.MethodRestore, ref, files, nil); err != nil {
		return fmt.Errorf("restore %s: %w", im.ID, err)
	}
	loaded := make(chan error, 1)
	go func() { loaded <- e.keeper.call(ctx, keeperapi.MethodWaitRestore, ref, nil, nil) }()
	who.SavedUnixNano = im.Created.UnixNano()
	told := e.configure(ctx, life, who)
	if err := <-loaded; err != nil {
		return fmt.Errorf("restore %s: %w", im.ID, err)
	}
	if told != nil {
		return fmt.Errorf("restore %s: %w", im.ID, told)
	}
	return nil
}

// openImage opens an image that this engine can restore.
func (e *Engine) openImage(id cube.ImageID) (*image.Files, error) {
	f, err := e.images.OpenImage(id)
	if err != nil {
		return nil, err
	}
	if f.Image.Engine != e.Version() {
		f.Close()
		return nil, fmt.Errorf("image %s was made by engine %s, this is %s: %w", id, f.Image.Engine, e.Version(), cube.ErrIncompatible)
	}
	return f, nil
}

// identify is what the agent of a life is told.
func identify(id cube.SandboxID, gen cube.Generation, who cube.Identity, l cube.Limits) agentapi.Configure {
	host := who.Hostname
	if host == "" {
		host = string(id[:12])
	}
	return agentapi.Configure{
		Version: agentapi.Version, SandboxID: string(id), Generation: uint64(gen), Hostname: host,
		Env: who.Env, AccessToken: who.AccessToken, User: who.User, MemoryBytes: l.MemoryMiB << 20, Pids: l.Pids,
	}
}

// agentTime bounds how long an agent may take to answer, in a restored life.
const agentTime = 20 * time.Second

// configure tells the agent of a life who it is.
func (e *Engine) configure(ctx context.Context, life string, c agentapi.Configure) error {
	return e.configureBy(ctx, life, e.control(life), c)
}

// configureBy does so over a connection that dial gives.
func (e *Engine) configureBy(ctx context.Context, life string, dial agentclient.Dialer, c agentapi.Configure) error {
	defer timing.Phase(ctx, "agent")()
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	c.TimeUnixNano = time.Now().UnixNano()
	got, err := agentclient.SendConfigure(ctx, dial, c)
	if err == nil {
		e.lastEvent.Store(life, got.LastEvent)
		return nil
	}
	if isRefused(err) {
		return err // it is there and does not listen yet
	}
	// An agent that is not there any more cannot say why; its keeper can.
	if _, dead := e.lifeUsage(context.WithoutCancel(ctx), life); errors.Is(dead, cube.ErrDead) {
		return dead
	}
	return err
}

// control dials the agent's control port in one life.
func (e *Engine) control(life string) agentclient.Dialer {
	return func(ctx context.Context, port uint16) (net.Conn, error) {
		return e.net.Dial(ctx, api.Dial{Life: life, Port: port, Via: api.ViaDirect, Control: true})
	}
}

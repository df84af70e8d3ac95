package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentclient"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/timing"
)

// createFromFiles makes a sandbox by a cold boot of an image's root file system, over
// which its files are put. Sentry and agent are those of today, whatever the image was
// made with: what it needs is its root file system and the tar alone.
func (e *Engine) createFromFiles(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	tar, im, err := e.images.OpenDisk(spec.Image)
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	defer tar.Close()
	promised, err := e.admission.reserve(e, bootCost)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer promised.end()
	labels := pendingLabels(spec)
	l, err := e.filledLife(ctx, im, tar, labels)
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("create %s from the files of image %s: %w", spec.ID, im.ID, err)
	}
	sb, err := e.install(ctx, l, labels, bootCost)
	if err != nil {
		return cube.Sandbox{}, err
	}
	e.events.send(cube.Event{
		Kind: cube.EventFilesOnly, Sandbox: sb.ID, Generation: sb.Generation, At: time.Now(),
		Detail: "booted from the files of image " + string(im.ID) + ", without its memory",
	})
	return sb, nil
}

// filledLife gives a booted, configured life with an image's files, that nobody knows
// yet. After a failure it does not exist.
func (e *Engine) filledLife(ctx context.Context, im cube.Image, tar *os.File, labels keeperapi.Labels) (_ life, err error) {
	boot := timing.Phase(ctx, "boot")
	l, err := e.bootLife(ctx, e.keepers.current, shape{e.Version(), im.Rootfs, e.agent, im.Limits}, labels)
	boot()
	if err != nil {
		return life{}, err
	}
	defer func() {
		if err != nil {
			e.bury(l)
		}
	}()
	if err := fpCreateBooted.Hit(); err != nil {
		return life{}, err
	}
	if err := l.call(ctx, keeperapi.MethodStart, nil, nil); err != nil {
		return life{}, fmt.Errorf("start: %w", err)
	}
	if err := e.sendFiles(ctx, l, tar); err != nil {
		return life{}, err
	}
	if err := fpCreateFilesSent.Hit(); err != nil {
		return life{}, err
	}
	who := identify(labels.Sandbox, labels.Generation, labels.Identity, im.Limits)
	who.Restored = true // its files were
	return l, e.configure(ctx, l, who)
}

// sendFiles has the agent of a life that has just been started put files in place.
func (e *Engine) sendFiles(ctx context.Context, l life, tar *os.File) error {
	defer timing.Phase(ctx, "files")()
	err := whenBooted(ctx, func(ctx context.Context) error {
		_, err := agentclient.GetStatus(ctx, l.control())
		return err
	})
	if err != nil {
		return err
	}
	put, err := agentclient.SendFiles(ctx, l.control(), tar)
	if put.Skipped > 0 {
		e.log.Warn("attributes of files could not be set again", "life", l.id, "attributes", put.Skipped)
	}
	if err == nil {
		return nil
	}
	// An agent that is not there any more cannot say why; its keeper can.
	if _, dead := l.usage(context.WithoutCancel(ctx)); errors.Is(dead, cube.ErrDead) {
		return dead
	}
	return err
}

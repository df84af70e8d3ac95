package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentclient"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/image"
	"cubesandbox/internal/timing"
)

// saveSlack is set aside on disk above what the guest has committed, in bytes: it
// goes on committing until the save begins.
const saveSlack = 64 << 20

// Save implements cube.Engine.
func (e *Engine) Save(ctx context.Context, id cube.SandboxID, im cube.ImageID) (cube.Image, error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return cube.Image{}, err
	}
	defer end()
	s, err := e.lock(id)
	if err != nil {
		return cube.Image{}, err
	}
	defer s.unlock()
	kind := cube.KindSnapshot
	if im.IsTemplate() {
		kind = cube.KindTemplate
		// Every sandbox made from it would start with a connection of ours.
		s.unfollow()
		defer e.follow(s)
		l, _, _ := s.current()
		if err := agentclient.Quiesce(ctx, l.control()); err != nil {
			return cube.Image{}, fmt.Errorf("save %s: %w", id, err)
		}
	}
	out, err := e.writeImage(ctx, s, im, kind)
	if err != nil {
		return cube.Image{}, fmt.Errorf("save %s: %w", id, e.orDead(s, err))
	}
	return out, nil
}

// Pause implements cube.Engine.
func (e *Engine) Pause(ctx context.Context, id cube.SandboxID, im cube.ImageID, p cube.Pausing) (cube.Image, error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return cube.Image{}, err
	}
	defer end()
	s, err := e.lock(id)
	if err != nil {
		return cube.Image{}, err
	}
	defer s.unlock()
	l, info, identity := s.current()
	labels := keeperapi.Labels{Sandbox: id, Generation: info.Generation, Image: info.Image, Identity: identity}
	out, err := e.pauseLife(ctx, s, l, im, labels, p)
	if err != nil {
		e.keep(s, false)
		if _, lerr := l.makeCurrent(context.WithoutCancel(ctx), labels); lerr != nil {
			e.log.Error("the label of a pause that failed stays", "sandbox", id, "error", lerr)
		}
		e.unfreeze(s, l)
		return cube.Image{}, fmt.Errorf("pause %s: %w", id, e.orDead(s, err))
	}
	// Published and durable: from here on the image is the sandbox, and a life that
	// should be left of it is ended by whoever finds it.
	e.remove(s)
	e.bury(l)
	e.passed(fpPauseEnded)
	return out, nil
}

// pauseLife freezes a life and saves it. That the image will be the sandbox is on
// record before it is published.
func (e *Engine) pauseLife(ctx context.Context, s *sandbox, l life, im cube.ImageID, labels keeperapi.Labels, p cube.Pausing) (cube.Image, error) {
	if err := l.freeze(ctx); err != nil {
		return cube.Image{}, fmt.Errorf("freeze: %w", err)
	}
	s.setState(cube.StateFrozen)
	if err := fpPauseFrozen.Hit(); err != nil {
		return cube.Image{}, err
	}
	labels.Pausing = im
	if _, err := l.makeCurrent(ctx, labels); err != nil {
		return cube.Image{}, err
	}
	if err := fpPauseLabelled.Hit(); err != nil {
		return cube.Image{}, err
	}
	w, err := e.saveTo(ctx, s, im)
	if err != nil {
		return cube.Image{}, err
	}
	e.keep(s, true)
	err = fpPauseSaved.Hit()
	if err == nil && ctx.Err() != nil && l.runs() {
		err = ctx.Err()
	}
	if err != nil {
		w.Abort()
		return cube.Image{}, err
	}
	// From here on it must be published: the life may have ended.
	out, err := e.publish(context.WithoutCancel(ctx), w, e.describe(s, cube.KindPause))
	if err != nil {
		return cube.Image{}, err
	}
	err = fpPausePublished.Hit()
	if err == nil {
		out, err = e.filesApart(ctx, s, l, out, p)
	}
	if err == nil {
		err = fpPauseFiles.Hit()
	}
	if err != nil {
		return e.takeBack(l, out, err)
	}
	return out, nil
}

// takeBack is for a pause that has failed when its image was published: that is
// deleted where the life runs on. Where it does not it is all that is left of the
// sandbox, and the pause has succeeded with what is in it.
func (e *Engine) takeBack(l life, im cube.Image, failed error) (cube.Image, error) {
	if l.runs() {
		return cube.Image{}, errors.Join(failed, e.images.Delete(im.ID))
	}
	e.log.Warn("a pause goes on with what it has, for its sandbox does not run on", "image", im.ID, "life", l.id, "error", failed)
	if now, err := e.images.Image(im.ID); err == nil {
		im = now
	}
	return im, nil
}

// writeImage saves the current life to a new image and publishes it.
func (e *Engine) writeImage(ctx context.Context, s *sandbox, id cube.ImageID, kind cube.ImageKind) (cube.Image, error) {
	w, err := e.saveTo(ctx, s, id)
	if err != nil {
		return cube.Image{}, err
	}
	if err := fpSaveSaved.Hit(); err != nil {
		w.Abort()
		return cube.Image{}, err
	}
	out, err := e.publish(ctx, w, e.describe(s, kind))
	if err != nil {
		return cube.Image{}, err
	}
	if err := fpSavePublished.Hit(); err != nil {
		return cube.Image{}, errors.Join(err, e.images.Delete(out.ID))
	}
	if kind == cube.KindSnapshot { // what a template is made of ends now
		e.adoptPublished(ctx, s, out.ID)
	}
	return out, nil
}

// publish makes an image exist: that of a pause durably, for the life is ended then;
// others become so by the image store.
func (e *Engine) publish(ctx context.Context, w *image.Writer, im cube.Image) (cube.Image, error) {
	defer timing.Phase(ctx, "publish")()
	if err := ctx.Err(); err != nil {
		w.Abort()
		return cube.Image{}, err
	}
	return w.Publish(ctx, im, im.Kind != cube.KindSnapshot)
}

// saveTo writes the current life's state, unpublished.
func (e *Engine) saveTo(ctx context.Context, s *sandbox, id cube.ImageID) (*image.Writer, error) {
	defer timing.Phase(ctx, "save")()
	l, _, _ := s.current()
	u, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	// What it has memory in is there, for its sentry has it open. Of a base that is not
	// there it is only on record that it might have been adopted.
	bases, bytes := s.bases(), u.CommittedBytes+saveSlack
	if len(bases) < image.MaxBases { // else some of what is shared is written once more
		bytes -= u.SharedMemory + u.SharedFiles
	}
	w, err := e.images.Begin(id, bytes, e.images.Present(bases)...)
	if err != nil {
		return nil, err
	}
	if err := l.save(ctx, w); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

func (e *Engine) describe(s *sandbox, kind cube.ImageKind) cube.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	im := cube.Image{
		Kind: kind, Source: s.id, Generation: s.info.Generation, Created: time.Now().UTC(), Limits: s.info.Limits,
		Engine: s.engine, Rootfs: s.rootfs, Agent: s.agent, CPU: s.life.k.info.CPU,
	}
	if kind == cube.KindTemplate {
		im.Source, im.Generation = "", 0
	}
	return im
}

// orDead replaces an error by the reason when the sandbox has died meanwhile.
func (e *Engine) orDead(s *sandbox, err error) error {
	if info := s.view(); info.State == cube.StateDead {
		return deadError(info)
	}
	return err
}

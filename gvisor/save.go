package gvisor

import (
	"context"
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
		life, _, _ := s.current()
		if err := agentclient.Quiesce(ctx, e.control(life)); err != nil {
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
	if p.FilesOnly {
		return cube.Image{}, fmt.Errorf("pause %s: its files alone: %w", id, cube.ErrUnsupported)
	}
	s, err := e.lock(id)
	if err != nil {
		return cube.Image{}, err
	}
	defer s.unlock()
	life, info, identity := s.current()
	l := keeperapi.Labels{Sandbox: id, Generation: info.Generation, Image: info.Image, Identity: identity}
	out, err := e.pauseLife(ctx, s, life, im, l)
	if err != nil {
		if _, lerr := e.makeCurrent(context.WithoutCancel(ctx), life, l); lerr != nil {
			e.log.Error("the label of a pause that failed stays", "sandbox", id, "error", lerr)
		}
		e.unfreeze(s, life)
		return cube.Image{}, fmt.Errorf("pause %s: %w", id, e.orDead(s, err))
	}
	// Published: from here on the image is the sandbox, and a life that should be
	// left of it is ended by whoever finds it.
	e.remove(s)
	e.bury(life)
	return out, nil
}

// pauseLife freezes a life and saves it. That the image will be the sandbox is on
// record before it is published.
func (e *Engine) pauseLife(ctx context.Context, s *sandbox, life string, im cube.ImageID, l keeperapi.Labels) (cube.Image, error) {
	if err := e.freeze(ctx, life); err != nil {
		return cube.Image{}, fmt.Errorf("freeze: %w", err)
	}
	s.setState(cube.StateFrozen)
	l.Pausing = im
	if _, err := e.makeCurrent(ctx, life, l); err != nil {
		return cube.Image{}, err
	}
	return e.writeImage(ctx, s, im, cube.KindPause)
}

// bury ends a life that must not be, in the background and again until it is so.
func (e *Engine) bury(life string) {
	if e.endLife(life, cube.DeathKilled) == nil {
		return
	}
	e.background(func() {
		for {
			select {
			case <-time.After(time.Second):
			case <-e.ctx.Done():
				return // the next engine finds it
			}
			if e.endLife(life, cube.DeathKilled) == nil {
				return
			}
		}
	})
}

// unfreeze lets a life run on after a verb has failed, with its egress, whatever
// became of the verb's context. Where the keeper cannot be reached now, the
// sandbox stays frozen until it can (see resync).
func (e *Engine) unfreeze(s *sandbox, life string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.resumeLife(ctx, life); err != nil {
		s.setState(cube.StateFrozen)
		e.log.Error("a sandbox does not run on", "sandbox", s.id, "life", life, "error", err)
		return
	}
	s.setState(cube.StateRunning)
}

// writeImage saves the current life to a new image and publishes it.
func (e *Engine) writeImage(ctx context.Context, s *sandbox, id cube.ImageID, kind cube.ImageKind) (cube.Image, error) {
	defer timing.Phase(ctx, "save")()
	w, err := e.saveTo(ctx, s, id)
	if err != nil {
		return cube.Image{}, err
	}
	if err := ctx.Err(); err != nil {
		w.Abort()
		return cube.Image{}, err
	}
	return publish(w, e.describe(s, kind), kind == cube.KindPause)
}

// publish fits both forms of the image store while it changes.
func publish(w any, im cube.Image, durable bool) (cube.Image, error) {
	switch w := w.(type) {
	case interface {
		Publish(cube.Image, bool) (cube.Image, error)
	}:
		return w.Publish(im, durable)
	case interface {
		Publish(cube.Image) (cube.Image, error)
	}:
		return w.Publish(im)
	}
	panic("image store")
}

// saveTo writes the current life's state, unpublished.
func (e *Engine) saveTo(ctx context.Context, s *sandbox, id cube.ImageID) (*image.Writer, error) {
	life, _, _ := s.current()
	u, err := e.lifeUsage(ctx, life)
	if err != nil {
		return nil, err
	}
	w, err := e.images.Begin(id, u.CommittedBytes+saveSlack)
	if err != nil {
		return nil, err
	}
	if err := e.keeper.call(ctx, keeperapi.MethodSave, keeperapi.Ref{Life: life}, w.Files, nil); err != nil {
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
		Engine: s.engine, Rootfs: s.rootfs, Agent: s.agent,
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

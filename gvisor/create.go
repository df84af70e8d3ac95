package gvisor

import (
	"context"
	"fmt"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/timing"
)

// bootTime bounds how long a cold boot may take until the agent answers.
const bootTime = 60 * time.Second

// Boot implements cube.Engine.
func (e *Engine) Boot(ctx context.Context, spec cube.BootSpec) (_ cube.Sandbox, err error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer end()
	release, err := e.claimID(spec.ID)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer release()
	promised, err := e.admission.reserve(e, bootCost)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer promised.end()
	labels := keeperapi.Labels{Role: keeperapi.RolePending, Sandbox: spec.ID, Generation: 1, Identity: spec.Identity}
	l, err := e.bootLife(ctx, e.keepers.current, shape{e.Version(), spec.Rootfs, e.agent, spec.Limits}, labels)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer func() {
		if err != nil {
			e.bury(l)
		}
	}()
	if err := l.call(ctx, keeperapi.MethodStart, nil, nil); err != nil {
		return cube.Sandbox{}, fmt.Errorf("start: %w", err)
	}
	c := identify(spec.ID, 1, spec.Identity, spec.Limits)
	if err := e.configureBooting(ctx, l, c); err != nil {
		return cube.Sandbox{}, err
	}
	return e.install(ctx, l, labels, 0)
}

// configureBooting waits for an agent that is only starting.
func (e *Engine) configureBooting(ctx context.Context, l life, c agentapi.Configure) error {
	return whenBooted(ctx, func(ctx context.Context) error { return e.configure(ctx, l, c) })
}

// whenBooted asks something of an agent that is only starting, once it listens.
func whenBooted(ctx context.Context, ask func(context.Context) error) error {
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil || !isRefused(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if asked.Err() != nil {
				return asked.Err()
			}
			return fmt.Errorf("the agent does not listen after %v: %w: %w", bootTime, cube.ErrAgent, err)
		}
	}
}

// Create implements cube.Engine.
func (e *Engine) Create(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer end()
	spec.Generation = max(1, spec.Generation)
	release, err := e.claimID(spec.ID)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer release()
	if spec.Files {
		return e.createFromFiles(ctx, spec)
	}
	if m, ok := e.pools.claim(spec.Image); ok {
		sb, err := e.claimMember(ctx, m, spec)
		if err == nil || ctx.Err() != nil {
			return sb, err
		}
		e.log.Warn("a pool's member could not be used", "life", m.life.id, "sandbox", spec.ID, "error", err)
	}
	src, err := e.openImage(ctx, spec.Image)
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer src.close()
	promised, err := e.admission.reserve(e, costOf(src.image))
	if err != nil {
		return cube.Sandbox{}, err
	}
	defer promised.end()
	return e.createFrom(ctx, spec, src)
}

// Resume implements cube.Engine.
func (e *Engine) Resume(ctx context.Context, spec cube.CreateSpec) (cube.Sandbox, error) {
	if spec.Generation < 2 {
		return cube.Sandbox{}, fmt.Errorf("resume %s: generation %d: it must be above that of the paused life: %w", spec.ID, spec.Generation, cube.ErrInvalid)
	}
	return e.Create(ctx, spec)
}

// createFrom restores a new life and makes it a sandbox.
func (e *Engine) createFrom(ctx context.Context, spec cube.CreateSpec, src source) (cube.Sandbox, error) {
	labels := pendingLabels(spec)
	l, err := e.newLife(ctx, src, labels)
	if err != nil {
		return cube.Sandbox{}, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	return e.install(ctx, l, labels, costOf(src.image))
}

// pendingLabels are those of a sandbox that is being made.
func pendingLabels(spec cube.CreateSpec) keeperapi.Labels {
	return keeperapi.Labels{Role: keeperapi.RolePending, Sandbox: spec.ID, Generation: spec.Generation, Image: spec.Image, Identity: spec.Identity}
}

// newLife gives a restored, configured life that nobody knows yet. After a
// failure it does not exist.
func (e *Engine) newLife(ctx context.Context, src source, labels keeperapi.Labels) (life, error) {
	boot := timing.Phase(ctx, "boot")
	l, err := e.bootedLife(ctx, src, labels)
	boot()
	if err != nil {
		return life{}, err
	}
	if err := fpCreateBooted.Hit(); err != nil {
		e.bury(l)
		return life{}, err
	}
	who := identify(labels.Sandbox, labels.Generation, labels.Identity, src.image.Limits)
	files, err := src.files.Reopen()
	if err == nil {
		err = e.restoreLife(ctx, l, src.image, files, who)
		files.Close()
	}
	if err == nil {
		err = fpCreateRestored.Hit()
	}
	if err != nil {
		e.bury(l)
		return life{}, err
	}
	return l, nil
}

// bootedLife takes a sentry from the pool, or boots one.
func (e *Engine) bootedLife(ctx context.Context, src source, labels keeperapi.Labels) (life, error) {
	if l, ok := e.pools.booted(shapeOf(src.image)); ok {
		err := l.label(ctx, keeperapi.Label{Labels: labels}, nil)
		if err == nil {
			return l, nil
		}
		e.bury(l)
	}
	return e.bootLife(ctx, src.k, shapeOf(src.image), labels)
}

// claimMember makes a restored, frozen member of a pool a sandbox. That it is
// claimed is on record before it moves.
func (e *Engine) claimMember(ctx context.Context, m member, spec cube.CreateSpec) (_ cube.Sandbox, err error) {
	defer timing.Phase(ctx, "claim")()
	labels := pendingLabels(spec)
	err = m.life.label(ctx, keeperapi.Label{Labels: labels, Resume: true}, nil)
	if err == nil {
		c := identify(spec.ID, spec.Generation, spec.Identity, m.image.Limits)
		c.SavedUnixNano, c.SameLife, c.Restored = m.frozen.UnixNano(), true, true
		err = e.configureBy(ctx, m.life, m.dial(), c)
	}
	if err != nil {
		e.bury(m.leave())
		return cube.Sandbox{}, err
	}
	sb, err := e.install(ctx, m.life, labels, costOf(m.image))
	if err == nil {
		e.lend(sb.ID, m.life, m.envd)
	} else {
		m.envd.Close()
	}
	return sb, err
}

// install makes a life the current one of a sandbox that is new. After a failure
// the life does not exist.
func (e *Engine) install(ctx context.Context, l life, labels keeperapi.Labels, cost int64) (cube.Sandbox, error) {
	v, err := l.makeCurrent(ctx, labels)
	if err == nil {
		err = fpCreateLabelled.Hit()
	}
	if err != nil {
		e.bury(l)
		return cube.Sandbox{}, err
	}
	s := newSandbox(l.k, v)
	s.cost = cost
	e.enter(s)
	e.follow(s)
	return s.view(), nil
}

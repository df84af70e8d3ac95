package gvisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	cube "cubesandbox"
)

// Clone implements cube.Engine.
func (e *Engine) Clone(ctx context.Context, id cube.SandboxID, specs []cube.CreateSpec, limit int) ([]cube.Sandbox, error) {
	ctx, end, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if limit < 0 {
		return nil, fmt.Errorf("clone %s: %d at the same time: %w", id, limit, cube.ErrInvalid)
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("clone %s: no clones asked for: %w", id, cube.ErrInvalid)
	}
	for i := range specs {
		release, err := e.claimID(specs[i].ID)
		if err != nil {
			return nil, fmt.Errorf("clone %s: %w", id, err)
		}
		defer release()
	}
	specs = slices.Clone(specs) // they are completed below
	src, promised, err := e.cloneSource(ctx, id, len(specs))
	if err != nil {
		return nil, fmt.Errorf("clone %s: %w", id, err)
	}
	defer promised.end()
	defer src.close()
	out, err := e.createAll(ctx, specs, src, promised, limit)
	if err != nil {
		return nil, fmt.Errorf("clone %s: %w", id, err)
	}
	return out, nil
}

// cloneSource reserves room for n clones and saves the sandbox's state to files
// without a name.
func (e *Engine) cloneSource(ctx context.Context, id cube.SandboxID, n int) (_ source, _ *promise, err error) {
	s, err := e.lock(id)
	if err != nil {
		return source{}, nil, err
	}
	defer s.unlock()
	l, _, _ := s.current()
	u, err := l.usage(ctx)
	if err != nil {
		return source{}, nil, e.orDead(s, err)
	}
	promised, err := e.admission.reserve(e, int64(n)*cost(u.CommittedBytes))
	if err != nil {
		return source{}, nil, err
	}
	src, err := e.unnamed(ctx, s)
	if err != nil {
		promised.end()
		return source{}, nil, e.orDead(s, err)
	}
	e.adoptSaved(ctx, s, src.files)
	if err := fpCloneSaved.Hit(); err != nil {
		src.close()
		promised.end()
		return source{}, nil, err
	}
	return src, promised, nil
}

// createAll makes all sandboxes or none. They are pending until every one is
// there: what a crash leaves before that is ended by the next engine.
func (e *Engine) createAll(ctx context.Context, specs []cube.CreateSpec, src source, promised *promise, limit int) ([]cube.Sandbox, error) {
	lives, err := e.newLives(ctx, specs, src, promised, limit)
	if err != nil {
		return nil, err
	}
	out := make([]cube.Sandbox, len(specs))
	made, err := 0, fpCloneRestoredAll.Hit()
	// What is labelled is here to stay: ctx ends nothing any more.
	ctx = context.WithoutCancel(ctx)
	for ; err == nil && made < len(specs); made++ {
		if made == 1 {
			if err = fpCloneLabelledOne.Hit(); err != nil {
				break
			}
		}
		if out[made], err = e.install(ctx, lives[made], pendingLabels(specs[made]), costOf(src.image)); err != nil {
			lives[made] = life{} // install has ended it
			break
		}
	}
	if err == nil {
		err = fpCloneLabelledAll.Hit()
	}
	if err == nil {
		return out, nil
	}
	for _, spec := range specs[:made] {
		e.kill(ctx, spec.ID)
	}
	for _, l := range lives[made:] {
		if l.k != nil {
			e.bury(l)
		}
	}
	return nil, err
}

// newLives restores one life for each spec, or none. What each takes of the memory that is
// promised to all is in the machine's figures then.
func (e *Engine) newLives(ctx context.Context, specs []cube.CreateSpec, src source, promised *promise, limit int) ([]life, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lives := make([]life, len(specs))
	errs := make([]error, len(specs))
	// Twice the processors: one sentry boots while another restores.
	most := 2 * cap(e.restores)
	if limit > 0 {
		most = min(most, limit)
	}
	slots := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i := range specs {
		specs[i].Generation, specs[i].Image = max(1, specs[i].Generation), ""
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			if lives[i], errs[i] = e.newLife(ctx, src, pendingLabels(specs[i])); errs[i] != nil {
				errs[i] = fmt.Errorf("create %s: %w", specs[i].ID, errs[i])
				cancel()
				return
			}
			promised.kept(costOf(src.image))
		})
	}
	wg.Wait()
	if err := first(errs); err != nil {
		for i, l := range lives {
			if errs[i] == nil {
				e.bury(l)
			}
		}
		return nil, err
	}
	return lives, nil
}

// first is the error that came first, not the cancellations that it caused.
func first(errs []error) error {
	var canceled error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			return err
		}
		canceled = err
	}
	return canceled
}

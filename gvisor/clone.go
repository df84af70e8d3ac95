package gvisor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	cube "cubesandbox"
)

// Clone implements cube.Engine.
func (e *Engine) Clone(ctx context.Context, id cube.SandboxID, specs []cube.CreateSpec) ([]cube.Sandbox, error) {
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
	src, done, err := e.cloneSource(ctx, id, len(specs))
	if err != nil {
		return nil, fmt.Errorf("clone %s: %w", id, err)
	}
	defer done()
	defer closeAll(src.files)
	out, err := e.createAll(ctx, specs, src)
	if err != nil {
		return nil, fmt.Errorf("clone %s: %w", id, err)
	}
	return out, nil
}

// cloneSource reserves room for n clones and saves the sandbox's state to files
// without a name. done gives the reservation back.
func (e *Engine) cloneSource(ctx context.Context, id cube.SandboxID, n int) (_ source, done func(), err error) {
	s, err := e.lock(id)
	if err != nil {
		return source{}, nil, err
	}
	defer s.unlock()
	life, _, _ := s.current()
	u, err := e.lifeUsage(ctx, life)
	if err != nil {
		return source{}, nil, e.orDead(s, err)
	}
	if done, err = e.admission.reserve(e, int64(n)*cost(u.CommittedBytes)); err != nil {
		return source{}, nil, err
	}
	src, err := e.unnamed(ctx, s)
	if err != nil {
		done()
		return source{}, nil, e.orDead(s, err)
	}
	return src, done, nil
}

// createAll makes all sandboxes or none.
func (e *Engine) createAll(ctx context.Context, specs []cube.CreateSpec, src source) ([]cube.Sandbox, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := make([]cube.Sandbox, len(specs))
	errs := make([]error, len(specs))
	// Twice the processors: one sentry boots while another restores.
	slots := make(chan struct{}, 2*cap(e.restores))
	var wg sync.WaitGroup
	for i, spec := range specs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			spec.Generation, spec.Image = max(1, spec.Generation), ""
			if out[i], errs[i] = e.createFrom(ctx, spec, src); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if err := first(errs); err != nil {
		for i := range out {
			if errs[i] == nil {
				e.Kill(context.Background(), specs[i].ID)
			}
		}
		return nil, err
	}
	return out, nil
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

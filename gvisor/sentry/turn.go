package sentry

import (
	"context"
	"fmt"
	"os"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// gVisor counts stops: a pause adds one, a resume takes one away, and a resume at
// zero ends the sentry. Ours do not nest, so what was asked for is written down
// before, and whoever finds it unanswered makes the count at least one.

func (k *Keeper) pause(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	return k.freeze(r, keeperapi.StateRunning, keeperapi.StatePaused, boot.ContMgrPause)
}

func (k *Keeper) resume(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	return k.freeze(r, keeperapi.StatePaused, keeperapi.StateRunning, boot.ContMgrResume)
}

func (k *Keeper) freeze(r *fdrpc.Request, from, to keeperapi.State, method string) (any, []*os.File, error) {
	l, err := k.ref(r, 0)
	if err != nil {
		return nil, nil, err
	}
	l.op.Lock()
	defer l.op.Unlock()
	return nil, nil, l.turn(from, to, method)
}

// turn goes from one state to the other; op is held. After an error other than one
// of state the life is Detached, and paused or running.
func (l *life) turn(from, to keeperapi.State, method string) error {
	if err := l.need(from, to); err != nil {
		return err
	}
	if err := l.settle(callTime(boot.ContMgrPause)); err != nil {
		return err
	}
	if l.record().State == to {
		return nil
	}
	if err := l.update(func(r *record) { r.Turning = true }); err != nil {
		return err
	}
	if err := l.call(method, nil, nil); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	// Should this not be written, the next keeper settles it.
	l.note(func(r *record) {
		if r.Turning = false; r.State == from {
			r.State = to
		}
	})
	if to == keeperapi.StateRunning {
		l.takeRoom() // what is in use now can be taken by the next resume
	}
	return nil
}

// settle ends the doubt about a pause or resume that was not answered: after one
// more pause gVisor counts one or two stops, so that it stands still and can be
// resumed without harm.
func (l *life) settle(limit time.Duration) error {
	if !l.record().Turning {
		return nil
	}
	if err := l.callWithin(limit, boot.ContMgrPause, nil, nil); err != nil {
		return fmt.Errorf("pause a sentry in an unknown state: %w", err)
	}
	l.note(func(r *record) {
		if r.Turning, r.Unsure = false, true; r.State == keeperapi.StateRunning {
			r.State = keeperapi.StatePaused
		}
	})
	return nil
}

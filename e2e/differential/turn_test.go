package differential

import (
	"context"
	"errors"
	"fmt"
	"slices"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/differential/guestapi"
)

// turn does what comes after a generation.
func (u *run) turn(ctx context.Context, turn string) error {
	u.note("%s", turn)
	switch turn {
	case toPaused:
		if err := s.API.Pause(ctx, u.subject.id); err != nil {
			return err
		}
		if _, err := s.API.Resume(ctx, u.subject.id, 0); err != nil {
			return err
		}
		return u.look(ctx, []*box{u.subject}, nil)
	case toOlder:
		return u.goBack(ctx)
	case toFresh:
		return u.lookBack(ctx)
	}
	return nil
}

// goBack rolls the subject back to a snapshot of it. The model cannot go back: another
// one is booted, and does what was done until then.
func (u *run) goBack(ctx context.Context) error {
	var own []saved
	for _, sv := range u.saves {
		if sv.source == u.subject.id {
			own = append(own, sv)
		}
	}
	to := own[u.chance.IntN(len(own))]
	u.note("roll back to the snapshot after %d operations, one of %d", to.steps, len(own))
	if err := s.API.Rollback(ctx, u.subject.id, string(to.id)); err != nil {
		return err
	}
	old := u.model
	u.model = nil
	if err := old.kill(ctx); err != nil {
		return err
	}
	model, err := u.start(ctx, "model")
	if err != nil {
		return err
	}
	u.model, u.steps = model, u.steps[:to.steps]
	for _, st := range u.steps {
		if _, err := model.ask(ctx, guestapi.Request{Do: guestapi.Operate, Operation: st.operation, Seed: st.seed}); err != nil {
			return fmt.Errorf("again %q: %w", st.operation, err)
		}
	}
	if err := u.look(ctx, []*box{u.subject}, nil); err != nil {
		return err
	}
	// A model that was booted anew must have come to where the other one was.
	if names := differing(u.parts, to.parts); len(names) > 0 {
		return fmt.Errorf("the guest is not deterministic: done again, other %q", names)
	}
	return nil
}

// lookBack makes a copy of an older snapshot, which must be as it was saved whatever
// was done since then, and deletes the snapshot: others that came from it stay whole.
func (u *run) lookBack(ctx context.Context) (err error) {
	k := u.chance.IntN(len(u.saves))
	from := u.saves[k]
	u.note("look at snapshot %d, after %d operations", k+1, from.steps)
	sb, err := s.API.Create(ctx, client.NewSandbox{Template: string(from.id), Timeout: cube.NeverTimeout})
	if err != nil {
		return err
	}
	b := &box{fmt.Sprintf("a copy of snapshot %d", k+1), sb.ID}
	defer func() { err = errors.Join(err, b.kill(context.WithoutCancel(ctx))) }()
	digest, err := digests(ctx, []*box{b}, each(everyWay))
	if err != nil {
		return err
	}
	if names := differing(digest[0], from.parts); len(names) > 0 {
		return fmt.Errorf("%s is not as it was saved: other %q", b.role, names)
	}
	if u.load {
		if err := u.blocks(ctx, []*box{b}); err != nil {
			return err
		}
	}
	u.saves = slices.Delete(u.saves, k, k+1)
	return s.API.DeleteImage(ctx, string(from.id))
}

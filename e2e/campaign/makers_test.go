package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// makers are the verbs that make something, and take an idempotency key.
func makers() []verb {
	return []verb{
		{"create", func(context.Context, *subject) error { return nil }, doCreate, nil, afterCreate},
		{"clone", running(nil), doClone, nil, afterClone},
		{"snapshot", running(nil), doSnapshot, durable, afterSnapshot},
	}
}

func doCreate(ctx context.Context, u *subject) error {
	b, err := createKeyed(ctx, u.tag, newBox{Template: string(kept.witness.ID), Timeout: -1, Metadata: map[string]string{"case": u.tag}})
	if err == nil {
		u.made = []cube.SandboxID{b.ID}
	}
	return err
}

func afterCreate(ctx context.Context, u *subject) (bool, error) {
	happened, err := u.once(ctx, 1, doCreate)
	if err != nil {
		return happened, err
	}
	h, err := look(ctx, u.made[0])
	if err == nil {
		err = h.follows(kept.inWitness)
	}
	return happened, err
}

// clonesMade is how many clones are made at once.
const clonesMade = 3

func doClone(ctx context.Context, u *subject) error {
	made, err := cloneKeyed(ctx, u.tag, u.box.ID, clonesMade)
	if err == nil {
		u.made = nil
		for _, b := range made {
			u.made = append(u.made, b.ID)
		}
	}
	return err
}

func afterClone(ctx context.Context, u *subject) (bool, error) {
	happened, err := u.once(ctx, clonesMade, doClone)
	if err != nil {
		return happened, err
	}
	for _, id := range append(slices.Clone(u.made), u.box.ID) {
		if err := u.is(ctx, id, older); err != nil {
			return happened, err
		}
	}
	return happened, nil
}

// once finds out whether n sandboxes were made, all or none, asks again with the same
// key, and wants the same answer and no more sandboxes.
func (u *subject) once(ctx context.Context, n int, do func(context.Context, *subject) error) (happened bool, err error) {
	found, err := u.copies(ctx)
	if err != nil {
		return false, err
	}
	happened = len(found) > 0
	if happened && len(found) != n {
		return true, fmt.Errorf("of %d sandboxes %d are there", n, len(found))
	}
	if u.answered && !same(found, u.made) {
		return happened, fmt.Errorf("the answer was %v, and there are %v", u.made, found)
	}
	if err := do(ctx, u); err != nil {
		return happened, fmt.Errorf("asked again with the same key: %w", err)
	}
	again, err := u.copies(ctx)
	if err != nil {
		return happened, err
	}
	if !same(again, u.made) || len(again) != n || happened && !same(again, found) {
		return happened, fmt.Errorf("asked again with the same key: the answer is %v; there were %v, there are %v", u.made, found, again)
	}
	return happened, nil
}

func same(a, b []cube.SandboxID) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func doSnapshot(ctx context.Context, u *subject) error {
	snap, err := snapshotKeyed(ctx, u.tag, u.box.ID, "")
	if err == nil {
		u.image = snap.ID
	}
	return err
}

// durable waits until the snapshot survives a power cut. A server that has ended ends it.
func durable(ctx context.Context, u *subject) error {
	return lab.Until(20*time.Second, "the snapshot is durable", func() error {
		all, err := snapshotsOf(ctx, u.box.ID)
		if err != nil && s.HasEnded() {
			return nil
		}
		if err == nil && (len(all) != 1 || !all[0].Durable) {
			err = fmt.Errorf("there are %+v", all)
		}
		return err
	})
}

func afterSnapshot(ctx context.Context, u *subject) (bool, error) {
	if err := u.is(ctx, u.box.ID, older); err != nil {
		return false, err
	}
	found, err := snapshotsOf(ctx, u.box.ID)
	if err != nil {
		return false, err
	}
	happened := len(found) > 0
	if len(found) > 1 || u.answered && (!happened || found[0].ID != u.image) {
		return happened, fmt.Errorf("the answer was %q, and there are %+v", u.image, found)
	}
	if err := doSnapshot(ctx, u); err != nil {
		return happened, fmt.Errorf("asked again with the same key: %w", err)
	}
	again, err := snapshotsOf(ctx, u.box.ID)
	if err != nil {
		return happened, err
	}
	if len(again) != 1 || again[0].ID != u.image || happened && found[0].ID != u.image {
		return happened, fmt.Errorf("asked again with the same key: the answer is %q; there were %+v, there are %+v", u.image, found, again)
	}
	copied, err := users.Create(ctx, client.NewSandbox{Template: string(u.image), Metadata: map[string]string{"case": u.tag}})
	if err != nil {
		return happened, err
	}
	return happened, errors.Join(durable(ctx, u), u.is(ctx, copied.ID, older))
}

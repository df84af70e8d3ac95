package campaign

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
	"cubesandbox/e2e/leak"
)

// kept is what is there through all cases, and must never be touched by them.
var kept struct {
	// witness is the snapshot that subjects are made from, the last of a chain of which
	// some are deleted; inWitness is what it has.
	witness   snapshot
	inWitness held
	// One runs all the time, one is paused.
	running, paused client.Sandbox
	inRunning       held
	// before is what of ours is on the machine between two cases.
	before leak.State
}

// keep makes what is kept, for a test that calls it first, and takes it away at its end.
func keep(t *testing.T) {
	t.Helper()
	guard(t)
	ctx := t.Context()
	first := create(t, client.NewSandbox{Timeout: cube.NeverTimeout})
	if err := startWitness(ctx, first, 2); err != nil {
		t.Fatal(err)
	}
	last, saved, err := lab.Chain(ctx, users, first, lab.ChainLength-1, func(ctx context.Context, b client.Sandbox) error {
		return ask(ctx, b.ID, map[string]string{"op": "put", "key": "link", "value": string(b.ID)}, &struct{}{})
	})
	if err != nil {
		t.Fatal(err)
	}
	kept.inWitness = whole(t, last.ID)
	if kept.witness, err = snapshotKeyed(ctx, "", last.ID, "witness"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []cube.ImageID{saved[1].ID, saved[3].ID} {
		if err := users.DeleteImage(ctx, string(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := users.Kill(ctx, last.ID); err != nil {
		t.Fatal(err)
	}
	kept.running = first
	kept.paused = create(t, client.NewSandbox{Template: string(kept.witness.ID), Timeout: cube.NeverTimeout})
	kept.inRunning = whole(t, kept.running.ID)
	if err := users.Pause(ctx, kept.paused.ID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if _, err := users.Connect(ctx, kept.paused.ID, 0); err != nil {
			t.Errorf("what was paused all the time: %v", err)
		} else if h, err := look(ctx, kept.paused.ID); err != nil || h.follows(kept.inWitness) != nil {
			t.Errorf("what was paused all the time: %v, %v", err, h.follows(kept.inWitness))
		}
	})
	// As after a case: with what a server that has served these requests keeps open.
	_, err = startClean(ctx)
	if err := errors.Join(err, settled(ctx), tidy(ctx), untouched(ctx)); err != nil {
		t.Fatal(err)
	}
	if kept.before, err = steady(); err != nil {
		t.Fatal(err)
	}
}

// untouched fails for what a case did to what it had nothing to do with.
func untouched(ctx context.Context) error {
	h, err := look(ctx, kept.running.ID)
	if err != nil {
		return fmt.Errorf("another sandbox: %w", err)
	}
	if err := h.follows(kept.inRunning); err != nil {
		return fmt.Errorf("another sandbox: %w", err)
	}
	kept.inRunning = h
	if b, err := users.Get(ctx, kept.paused.ID); err != nil || b.State != "paused" || b.AccessToken != kept.paused.AccessToken {
		return fmt.Errorf("another sandbox, which was paused, is %q (%w)", b.State, err)
	}
	return nil
}

// readable reads every snapshot whole.
func readable(ctx context.Context) error {
	all, err := users.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	for _, snap := range all {
		if err := verify(ctx, snap.ID); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until no verb is under way.
func settled(ctx context.Context) error {
	return lab.Until(10*time.Second, "no plan is left", func() error {
		all, err := plans(ctx)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there are %+v", all)
		}
		return err
	})
}

// tidy fails for what on disk nothing needs. Pages are freed once the sentries that used
// them are gone, which is a moment after their keeper was killed; the garbage collection
// of the server comes long after that.
func tidy(ctx context.Context) error {
	return lab.Until(5*time.Second, "nothing on disk is of no use", func() error {
		all, err := garbage(ctx)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("a collection would free %+v", all)
		}
		return err
	})
}

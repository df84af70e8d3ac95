package service

import (
	"context"
	"syscall"
	"testing"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// TestPoolsAreFilledClaimedAndEnded: two restored sandboxes for the template, as is
// the default; a create takes one, and the pool fills again; members that nobody has
// claimed are ended by the next server, which makes its own.
func TestPoolsAreFilledClaimedAndEnded(t *testing.T) {
	ctx := t.Context()
	p, err := lab.OpenServer(ctx, "--pool-booted", "2", "--pool-restored", "2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	full := func() bool {
		n, err := p.PoolMembers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n == 2
	}
	waitFor(t, "two sandboxes are ready", full)
	b, err := p.API.Create(ctx, client.NewSandbox{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "two are ready again", full)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the next server has its own", full)
	all, err := p.API.List(ctx, client.Query{})
	if err != nil || len(all) != 1 || all[0].ID != b.ID {
		t.Errorf("sandboxes: %v (%v), want %s alone", all, err, b.ID)
	}
	// Sandbox, two booted, two restored: nothing of the first server's pools.
	lives := func() int {
		n, err := p.LivesHere(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	waitFor(t, "five lives and no more", func() bool { return lives() == 5 })
}

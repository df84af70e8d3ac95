package durable

import (
	"errors"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// slack is by how much the records may grow or shrink meanwhile, in bytes.
const slack = 6 << 20

// TestADeletedParentIsFreedWithItsLastChild: a snapshot that is deleted is gone for
// everybody at once, but its children go on, also after a restart of the server, can be
// cloned, paused and resumed, and when the last of them goes its bytes come back.
func TestADeletedParentIsFreedWithItsLastChild(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	in, st := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	before := used(t)
	snap, err := s.API.Snapshot(ctx, in.b.ID, "parent")
	if err != nil {
		t.Fatal(err)
	}
	var children []inside
	for range 2 {
		b, err := s.API.Create(ctx, client.NewSandbox{Template: string(snap.ID), Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, inside{s, b})
	}
	if err := s.API.Kill(ctx, in.b.ID); err != nil {
		t.Fatal(err)
	}
	size := used(t) - before
	if size < 16<<20 {
		t.Fatalf("the snapshot takes %d bytes", size)
	}

	remove(t, snap.ID)
	for _, name := range []string{string(snap.ID), "parent"} {
		if _, err := s.API.Create(ctx, client.NewSandbox{Template: name}); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("create from %s, which was deleted: %v", name, err)
		}
		if err := s.API.Rollback(ctx, children[0].b.ID, name); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("rollback to %s, which was deleted: %v", name, err)
		}
	}
	if all, err := s.API.Snapshots(ctx, ""); err != nil || len(all) != 0 {
		t.Errorf("snapshots: %+v (%v)", all, err)
	}

	restart(t)
	clones, err := s.API.Clone(ctx, children[0].b.ID, client.Cloning{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range clones {
		children = append(children, inside{s, b})
	}
	pause(t, children[1])
	if _, err := s.API.Resume(ctx, children[1].b.ID, 0); err != nil {
		t.Fatal(err)
	}
	for i, c := range children {
		c.same(t, st)
		if _, err := s.API.Collect(ctx, false); err != nil {
			t.Error(err)
		}
		if now := used(t) - before; now < size-slack {
			t.Errorf("%d children are alive, and %d of %d bytes are free already", len(children)-i, size-now, size)
		}
		if err := s.API.Kill(ctx, c.b.ID); err != nil {
			t.Error(err)
		}
	}
	if err := lab.Until(answerTime, "the bytes come back", func() error {
		if now := used(t) - before; now > slack {
			return errors.New("they are in use")
		}
		return nil
	}); err != nil {
		t.Errorf("%v: %d of %d bytes", err, used(t)-before, size)
	}
	if left, err := s.API.Collect(ctx, true); err != nil || len(left) != 0 {
		t.Errorf("garbage: %+v (%v)", left, err)
	}
}

func used(t *testing.T) int64 {
	t.Helper()
	n, err := s.Used()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

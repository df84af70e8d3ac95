package durable

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// chained makes a chain whose sandboxes have gone on each by a step, and deletes every
// second of its images. It returns the snapshot of the last, and how that was.
func chained(t *testing.T) (cube.ImageID, inside, state) {
	t.Helper()
	ctx := t.Context()
	first, _ := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	last, saved, err := lab.Chain(ctx, s.API, first.b, lab.ChainLength-1, func(ctx context.Context, b client.Sandbox) error {
		_, err := (inside{s, b}).step(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	in := inside{s, last}
	snap, err := s.API.Snapshot(ctx, last.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(saved); i += 2 {
		remove(t, saved[i].ID)
	}
	return snap.ID, in, in.now(t)
}

// TestTheEndOfAChainIsRestoredAsItWasSaved: by a rollback and in a new sandbox, before
// and after the server is started again, whatever ancestors are deleted.
func TestTheEndOfAChainIsRestoredAsItWasSaved(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	id, in, st := chained(t)
	for range 2 {
		if _, err := in.step(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.API.Rollback(ctx, in.b.ID, string(id)); err != nil {
			t.Fatal(err)
		}
		in.same(t, st)
		made, err := s.API.Create(ctx, client.NewSandbox{Template: string(id)})
		if err != nil {
			t.Fatal(err)
		}
		inside{s, made}.same(t, st)
		if err := s.API.Kill(ctx, made.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.VerifyImage(ctx, string(id)); err != nil {
			t.Error(err)
		}
		restart(t)
		in.same(t, st)
	}
}

// TestADamagedAncestorIsRefusedByWhoHasMemoryInIt: regions of the pages of each, and of
// the files of the last, its table among them; the sandbox answers as before.
func TestADamagedAncestorIsRefusedByWhoHasMemoryInIt(t *testing.T) {
	s.Guard(t)
	id, in, st := chained(t)
	im, err := s.Images.Image(id)
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Bases) == 0 {
		t.Log("this engine writes all memory into each image: it has no ancestor that could be damaged")
	}
	for _, base := range im.Bases {
		dir := filepath.Join(s.Where.StateDir, "bases", string(base))
		if _, err := os.Stat(dir); err != nil {
			dir = s.Images.Dir(base.Image())
		}
		all := damagesIn(t, dir, "pages")
		for i := range all {
			all[i].file = string(base)
		}
		eachOf(t, id, all, func() error { return s.API.Rollback(t.Context(), in.b.ID, string(id)) }, func() { in.same(t, st) })
	}
	entries, err := os.ReadDir(s.Images.Dir(id))
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Clone(memory)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "sources") {
			names = append(names, e.Name())
		}
	}
	each(t, id, func() error { return s.API.Rollback(t.Context(), in.b.ID, string(id)) }, func() { in.same(t, st) }, names...)
	if err := s.API.Rollback(t.Context(), in.b.ID, string(id)); err != nil {
		t.Fatalf("after all was put back: %v", err)
	}
	in.same(t, st)
}

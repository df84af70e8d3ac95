package probe

import (
	"slices"
	"testing"

	"cubesandbox/client/clienttest"
)

func TestAServerIsProbedThroughItsAPIAndItsDataPlane(t *testing.T) {
	s := clienttest.New(t)
	h, ctx := NewHTTPTarget(s.Client(t), "base"), t.Context()
	id, err := h.Create(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := h.Run(ctx, id, "exit", "7"); err != nil || out.Exit != 7 {
		t.Errorf("run: got %+v, %v", out, err)
	}
	if out, err := h.Run(ctx, id, "whoami"); err != nil || string(out.Stdout) != "root in / with \n" {
		t.Errorf("run: got %+v, %v, want it as root in /", out, err)
	}
	if err := h.WriteFile(ctx, id, "/a", []byte("x")); err != nil {
		t.Error(err)
	}
	// Another target knows no tokens, and asks for them.
	if b, err := NewHTTPTarget(s.Client(t), "").ReadFile(ctx, id, "/a"); err != nil || string(b) != "x" {
		t.Errorf("read: got %q, %v", b, err)
	}
	snap, err := h.Snapshot(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Rollback(ctx, id, snap); err != nil {
		t.Error(err)
	}
	copied, err := h.Create(ctx, snap)
	if err != nil || copied == id {
		t.Errorf("copy: got %s, %v", copied, err)
	}
	clones, err := h.Clone(ctx, id, 3)
	if err != nil || len(clones) != 3 {
		t.Errorf("clone: got %v, %v", clones, err)
	}
	all, err := h.Sandboxes(ctx)
	if err != nil || len(all) != 5 || !slices.Contains(all, id) {
		t.Errorf("sandboxes: got %v, %v, want 5: more than a page", all, err)
	}
	for _, id := range all {
		if err := h.Kill(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if all, err := h.Snapshots(ctx); err != nil || !slices.Equal(all, []string{snap}) {
		t.Errorf("snapshots: got %v, %v", all, err)
	}
	if err := h.DeleteSnapshot(ctx, snap); err != nil {
		t.Error(err)
	}
	if sandboxes, snapshots, err := inventory(ctx, h); err != nil || len(sandboxes)+len(snapshots) != 0 {
		t.Errorf("left: %v, %v, %v", sandboxes, snapshots, err)
	}
}

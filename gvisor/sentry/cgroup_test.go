package sentry

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestANodeThatAnotherKeeperRemovesIsMadeAgain: a keeper that ends removes its node and
// what is empty above it, while another makes the first group of its own.
func TestANodeThatAnotherKeeperRemovesIsMadeAgain(t *testing.T) {
	mounts := map[string]string{"memory": t.TempDir()}
	ending := &hierarchies{v1: mounts, node: "cube/x/k-1"}
	g := &group{h: &hierarchies{v1: mounts, node: "cube/x"}, life: "l"}
	for i := range 300 {
		var end sync.WaitGroup
		end.Go(ending.removeNode)
		if err := g.mkdir(); err != nil {
			t.Fatalf("group %d: %v", i, err)
		}
		end.Wait()
		if err := g.remove(); err != nil {
			t.Fatal(err)
		}
		ending.removeNode()
	}
}

// TestANodeThatIsMadeAgainHasItsControllers: in version 2 they are handed down by each
// node. A plain directory stands in for the kernel's.
func TestANodeThatIsMadeAgainHasItsControllers(t *testing.T) {
	root := t.TempDir()
	h := &hierarchies{v2: root, limited: true, node: "cube/x"}
	if err := h.delegate(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "cube")); err != nil {
		t.Fatal(err)
	}
	if err := (&group{h: h, life: "l"}).mkdir(); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"cube", "cube/x"} {
		if _, err := os.Stat(filepath.Join(root, node, "cgroup.subtree_control")); err != nil {
			t.Errorf("node %s hands nothing down: %v", node, err)
		}
	}
	gone := 0
	err := again(func() error {
		if gone++; gone < 3 {
			return os.ErrNotExist
		}
		return errors.New("another")
	})
	if gone != 3 || err == nil || err.Error() != "another" {
		t.Errorf("after %d tries: %v", gone, err)
	}
}

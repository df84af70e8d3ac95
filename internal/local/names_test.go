package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	cube "cubesandbox"
)

func TestANameThatCannotBeReadHidesNoOther(t *testing.T) {
	n := NamesIn(t.TempDir())
	id := cube.TemplateIDFromDigest([32]byte{1})
	for _, name := range []string{"good", "bad"} {
		if err := n.Set(name, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.dir, "bad"), []byte("tpl-0z"), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := n.Names()
	if err == nil || names["good"] != id || len(names) != 1 {
		t.Errorf("got %v (%v), want the good one and an error for the other", names, err)
	}
}

func TestWhatAKilledBuildLeftAmongNamesIsSwept(t *testing.T) {
	n := NamesIn(t.TempDir())
	if err := n.Set("base", cube.TemplateIDFromDigest([32]byte{1})); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(n.dir, ".new-old"), filepath.Join(n.dir, ".new-young")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	n.sweep()
	if _, err := os.Stat(old); err == nil {
		t.Error("the old one is left")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("what somebody may be writing is gone")
	}
}

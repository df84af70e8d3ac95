package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// large is how much memory, and how much in files, a sandbox of these tests has.
const large = 64 << 20

// loaded makes a sandbox with much in memory and in files.
func loaded(t *testing.T) cube.SandboxID {
	t.Helper()
	id := witness(t)
	sh(t, id, fmt.Sprintf("head -c %d /dev/urandom > /root/large && sync", large))
	sh(t, id, fmt.Sprintf(`python3 -c '
import os, time
held = os.urandom(%d)
open("/root/held", "w").close()
time.sleep(1e6)' >/dev/null 2>&1 &
while [ ! -e /root/held ]; do sleep 0.05; done`, large))
	return id
}

// saved is save, with what was written.
func saved(t *testing.T, id cube.SandboxID) cube.Image {
	t.Helper()
	im, err := l.Engine.Save(t.Context(), id, cube.NewSnapshotID())
	noError(t, err, "save")
	return im
}

// costsLittle wants an image to have saved little, and to have its memory in those that came
// before.
func costsLittle(t *testing.T, what string, im cube.Image, bases ...cube.BaseID) {
	t.Helper()
	const little = large / 4
	if im.PagesBytes > little || im.SharedBytes < 2*large-little {
		t.Errorf("%s wrote %d bytes and shares %d; want at most %d of some %d", what, im.PagesBytes, im.SharedBytes, little, 2*large)
	}
	for _, b := range bases {
		if !slices.Contains(im.Bases, b) {
			t.Errorf("%s has no memory in %s: %v", what, b, im.Bases)
		}
	}
}

// TestASnapshotSavesWhatHasChanged: of a sandbox that runs on, of a copy, after a clone,
// after a rollback, memory and files; and all of it is there in what is made of it.
func TestASnapshotSavesWhatHasChanged(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	id := loaded(t)
	first := saved(t, id)
	if first.PagesBytes < 2*large {
		t.Errorf("the first wrote %d bytes: want all that is there, %d at least", first.PagesBytes, 2*large)
	}
	sh(t, id, "dd if=/dev/urandom of=/root/large bs=64k count=16 seek=100 conv=notrunc 2>/dev/null")
	sum := sh(t, id, "sha256sum /root/large")
	second := saved(t, id)
	costsLittle(t, "the second", second, first.Base)
	copies := clone(t, id, 2)
	costsLittle(t, "one after a clone", saved(t, id), first.Base)
	third := saved(t, copies[0])
	costsLittle(t, "one of a clone", third, first.Base)
	// What nobody can use by name any more is there as long as others have memory in it.
	noError(t, l.Images.Delete(first.ID), "delete the first")
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: third.ID})
	noError(t, err, "create from the snapshot of a clone")
	_, err = l.Engine.Rollback(ctx, id, second.ID)
	noError(t, err, "roll back")
	costsLittle(t, "one after a rollback", saved(t, id), first.Base)
	for _, other := range append(copies, s.ID, id) {
		if got := sh(t, other, "sha256sum /root/large"); got != sum {
			t.Errorf("the file in %s is %s, want %s", other, got, sum)
		}
		l.Check(t, other)
	}
}

// TestABaseThatIsTruncatedEndsWhoHasMemoryInItAndNobodyElse: and they say why.
func TestABaseThatIsTruncatedEndsWhoHasMemoryInItAndNobodyElse(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	other := witness(t)
	before := l.Check(t, other)
	source := loaded(t)
	im := saved(t, source)
	s, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im.ID})
	noError(t, err, "create")
	if err := os.Truncate(filepath.Join(l.Images.Dir(im.ID), "pages"), 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []cube.SandboxID{s.ID, source} {
		err := lab.Until(20*time.Second, "it ends", func() error {
			l.Run(ctx, id, "/bin/cat", "/root/large") // it may end before it answers
			if got, err := l.Engine.Sandbox(ctx, id); err != nil || got.State != cube.StateDead {
				return fmt.Errorf("it is %s (%v)", got.State, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := l.Engine.Sandbox(ctx, id)
		if err != nil || got.Death.Reason != cube.DeathCrash || !strings.Contains(got.Death.Detail, string(im.Base)) || !strings.Contains(got.Death.Detail, "cannot be read") {
			t.Errorf("its death is %+v (%v), want that its image cannot be read", got.Death, err)
		}
		noError(t, l.Engine.Kill(ctx, id), "kill")
	}
	if now := l.Check(t, other); now.PID != before.PID {
		t.Errorf("the other one's witness is process %d, was %d", now.PID, before.PID)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/local"
)

// upgraded is a lab whose engine is of the previous version first, and then of the
// present one.
type upgraded struct {
	*lab.Lab
	present string // the folder of the present programs
	old     string // the version of the previous engine
}

// openPrevious makes the lab with the previous programs.
func openPrevious(t *testing.T) *upgraded {
	t.Helper()
	o := l.Options()
	t.Setenv("CUBE_BIN", previousPrograms(t, o.BinDir, o.CacheDir))
	old, err := lab.Open(t.Context(), 0)
	noError(t, err, "a lab with the previous version")
	u := &upgraded{old, o.BinDir, old.Engine.Version()}
	t.Cleanup(func() {
		if err := u.Shutdown(context.Background()); err != nil {
			t.Errorf("shut down: %v", err)
		}
	})
	return u
}

// upgrade closes the engine and opens one with the present programs.
func (u *upgraded) upgrade(t *testing.T) {
	t.Helper()
	noError(t, u.Close(), "close the engine")
	u.open(t)
}

// open opens the present engine.
func (u *upgraded) open(t *testing.T) {
	t.Helper()
	o := u.Options()
	o.BinDir, o.Linger = u.present, 300*time.Millisecond
	s, err := local.Open(t.Context(), o)
	noError(t, err, "open the present engine")
	u.Session = s
}

func (u *upgraded) create(t *testing.T, image cube.ImageID) cube.SandboxID {
	t.Helper()
	s, err := u.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: image})
	noError(t, err, "create")
	return s.ID
}

func (u *upgraded) save(t *testing.T, id cube.SandboxID) cube.Image {
	t.Helper()
	img, err := u.Engine.Save(t.Context(), id, cube.NewSnapshotID())
	noError(t, err, "save")
	return img
}

func (u *upgraded) kill(t *testing.T, ids ...cube.SandboxID) {
	t.Helper()
	for _, id := range ids {
		noError(t, u.Engine.Kill(t.Context(), id), "kill")
	}
}

// engineOf is the version of the sentry that a sandbox is.
func (u *upgraded) engineOf(t *testing.T, id cube.SandboxID) string {
	t.Helper()
	life, err := u.Life(t.Context(), id)
	noError(t, err, "life")
	return life.Engine
}

// keepers are the versions of those that run, in order, with their pids.
func (u *upgraded) keepers(t *testing.T) ([]string, map[string]keeperapi.Info) {
	t.Helper()
	h, err := local.LookAt(t.Context(), u.Options().RunDir)
	noError(t, err, "look at the keepers")
	var versions []string
	infos := map[string]keeperapi.Info{}
	for _, k := range h.Keepers {
		versions = append(versions, k.Engine)
		infos[k.Engine] = k
	}
	slices.Sort(versions)
	return versions, infos
}

// onlyKeeper waits until the keeper of one version is the only one.
func (u *upgraded) onlyKeeper(t *testing.T, version string) {
	t.Helper()
	noError(t, lab.Until(20*time.Second, "only the keeper of "+version+" is there", func() error {
		h, err := local.LookAt(t.Context(), u.Options().RunDir)
		if err != nil {
			return err
		}
		if len(h.Keepers) != 1 || h.Keepers[0].Engine != version {
			return fmt.Errorf("there are %d, the first of %s", len(h.Keepers), h.Engine)
		}
		return nil
	}), "wait")
}

// garbage are the versions that Collect names.
func (u *upgraded) garbage(t *testing.T, dry bool) []string {
	t.Helper()
	all, err := u.Engine.Collect(t.Context(), dry)
	noError(t, err, "collect")
	var names []string
	for _, g := range all {
		if g.Kind != cube.GarbageEngine || g.Bytes == 0 || g.Why == "" {
			t.Errorf("garbage %+v: want an engine with its size and the reason", g)
		}
		names = append(names, g.Name)
	}
	return names
}

// TestAnUpgradeOfTheEngineCostsNothing: sandboxes of the previous version run on in
// the same life, what was saved by it is restored by it, and what is new is made by
// the present one.
func TestAnUpgradeOfTheEngineCostsNothing(t *testing.T) {
	u := openPrevious(t)
	running := u.create(t, u.Witness)
	life := u.Check(t, running)
	snap := u.save(t, running)
	paused := u.create(t, u.Witness)
	u.Check(t, paused)
	pause, err := u.Engine.Pause(t.Context(), paused, cube.NewSnapshotID(), cube.Pausing{})
	noError(t, err, "pause")
	if snap.Engine != u.old || pause.Engine != u.old {
		t.Fatalf("made by %s and %s, want %s", snap.Engine, pause.Engine, u.old)
	}
	echo := connectBy(t, u.Engine, running)
	before, err := u.Life(t.Context(), running)
	noError(t, err, "life")
	_, infos := u.keepers(t)

	u.upgrade(t)
	present := u.Engine.Version()
	if present == u.old || u.Engine.Agent() == snap.Agent {
		t.Fatalf("engine %s and agent %s are those from before", present, snap.Agent)
	}
	versions, now := u.keepers(t)
	if want := []string{u.old, present}; !slices.Equal(versions, want) || now[u.old].PID != infos[u.old].PID {
		t.Fatalf("keepers of %q, the old one is %d; want %q and %d", versions, now[u.old].PID, want, infos[u.old].PID)
	}

	t.Run("a sandbox runs on", func(t *testing.T) {
		after, err := u.Life(t.Context(), running)
		noError(t, err, "life")
		if after.PID != before.PID || after.Life != before.Life {
			t.Errorf("life %s is process %d, before it was %s and %d", after.Life, after.PID, before.Life, before.PID)
		}
		echo.works()
		if got := u.Check(t, running); got.Identity != life.Identity || got.PID != life.PID || got.Uses != life.Uses+1 {
			t.Errorf("got %+v after %+v", got, life)
		}
	})
	t.Run("it is saved, rolled back and cloned by its own version", func(t *testing.T) {
		img := u.save(t, running)
		if img.Engine != u.old || img.Agent != snap.Agent {
			t.Errorf("its image was made by %s with agent %s, want %s and %s", img.Engine, img.Agent, u.old, snap.Agent)
		}
		_, err := u.Engine.Rollback(t.Context(), running, snap.ID)
		noError(t, err, "rollback")
		if got := u.Check(t, running); got.Identity != life.Identity || got.Uses != life.Uses+1 {
			t.Errorf("after a rollback: got %+v, want it as %+v and used once more", got, life)
		}
		ids := []cube.SandboxID{cube.NewSandboxID(), cube.NewSandboxID()}
		_, err = u.Engine.Clone(t.Context(), running, []cube.CreateSpec{{ID: ids[0]}, {ID: ids[1]}}, 0)
		noError(t, err, "clone")
		for _, id := range append(ids, running) {
			u.Check(t, id)
			if got := u.engineOf(t, id); got != u.old {
				t.Errorf("sandbox %s is of %s, want %s", id, got, u.old)
			}
		}
		u.kill(t, ids...)
	})
	t.Run("a paused one resumes", func(t *testing.T) {
		_, err := u.Engine.Resume(t.Context(), cube.CreateSpec{ID: paused, Image: pause.ID, Generation: 2})
		noError(t, err, "resume")
		if got := u.Check(t, paused); got.Identity != life.Identity || got.Uses != life.Uses+1 {
			t.Errorf("after resume: got %+v", got)
		}
	})
	var fresh cube.SandboxID
	t.Run("what is new is of the present version", func(t *testing.T) {
		img, err := u.Build(t.Context(), filepath.Join("..", "templates", "base"), false)
		noError(t, err, "build the template")
		if img.Engine != present || img.Agent != u.Engine.Agent() {
			t.Errorf("the template was made by %s with agent %s", img.Engine, img.Agent)
		}
		fresh = u.create(t, img.ID)
		if got := u.engineOf(t, fresh); got != present {
			t.Errorf("it is of %s, want %s", got, present)
		}
		u.runs(t, fresh)
	})
	t.Run("a sandbox is rolled back to an image of the other version", func(t *testing.T) {
		noError(t, u.WriteFile(t.Context(), fresh, "/root/mark", []byte("fresh")), "write")
		img := u.save(t, fresh)
		if _, err := u.Engine.Rollback(t.Context(), fresh, snap.ID); err != nil {
			t.Fatalf("back to the previous version: %v", err)
		}
		u.Check(t, fresh)
		if got := u.engineOf(t, fresh); got != u.old {
			t.Errorf("it is of %s, want %s", got, u.old)
		}
		if _, err := u.Engine.Rollback(t.Context(), fresh, img.ID); err != nil {
			t.Fatalf("forth to the present version: %v", err)
		}
		if b, err := u.ReadFile(t.Context(), fresh, "/root/mark"); err != nil || string(b) != "fresh" {
			t.Errorf("its file: got %q, %v", b, err)
		}
	})
	t.Run("nothing that is needed is garbage", func(t *testing.T) {
		if got := u.garbage(t, true); got != nil {
			t.Errorf("got %q", got)
		}
	})
	t.Run("the keeper of the previous version goes with its last sandbox, and comes back for an image", func(t *testing.T) {
		pid := now[u.old].PID
		u.kill(t, running, paused)
		u.onlyKeeper(t, present)
		noError(t, lab.Until(5*time.Second, "its process ends", func() error {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("process %d: %v", pid, err)
			}
			return nil
		}), "wait")
		again := u.create(t, snap.ID)
		u.Check(t, again)
		u.kill(t, again)
		u.onlyKeeper(t, present)
	})
	t.Run("the previous version is garbage when its last image is gone", func(t *testing.T) {
		all, err := u.Images.Images()
		noError(t, err, "images")
		for _, img := range all {
			if got := u.garbage(t, true); img.Engine == u.old && got != nil {
				t.Errorf("%q are garbage while there is image %s", got, img.ID)
			}
			if img.Engine == u.old {
				noError(t, u.Images.Delete(img.ID), "delete")
			}
		}
		dir := filepath.Join(u.Options().StateDir, "engines", u.old)
		then := time.Now().Add(-2 * time.Hour) // that it was installed
		noError(t, os.Chtimes(dir, then, then), "age it")
		noError(t, lab.Until(10*time.Second, "its last processes have ended", func() error {
			if len(u.garbage(t, true)) == 0 {
				return errors.New("something uses it")
			}
			return nil
		}), "wait")
		for _, dry := range []bool{true, false} {
			if got := u.garbage(t, dry); !slices.Equal(got, []string{u.old}) {
				t.Errorf("dry %v: %q are garbage, want %s", dry, got, u.old)
			}
			if _, err := os.Stat(dir); (err == nil) != dry {
				t.Errorf("dry %v: %s: %v", dry, dir, err)
			}
		}
		u.runs(t, fresh)
	})
	t.Run("the next engine finds the keeper where it is", func(t *testing.T) {
		u.upgrade(t)
		u.runs(t, fresh)
		u.kill(t, fresh)
	})
}

// TestAnUpgradeAfterTheKeeperWasKilledFindsItsSandboxes: the keeper of the previous
// version is started again, by its own program, and takes up what it had.
func TestAnUpgradeAfterTheKeeperWasKilledFindsItsSandboxes(t *testing.T) {
	u := openPrevious(t)
	id := u.create(t, u.Witness)
	life := u.Check(t, id)
	pid, err := u.Keeper(t.Context())
	noError(t, err, "keeper")
	noError(t, u.Close(), "close the engine")
	noError(t, lab.KillHard(pid), "kill the keeper")
	u.open(t)
	if versions, _ := u.keepers(t); !slices.Equal(versions, []string{u.old, u.Engine.Version()}) {
		t.Errorf("keepers of %q", versions)
	}
	if got := u.Check(t, id); got.Identity != life.Identity || got.PID != life.PID {
		t.Errorf("got %+v after %+v", got, life)
	}
	u.kill(t, id)
}

// TestDownEndsTheKeepersOfAllVersions: with all that they have, and where one was
// killed before too.
func TestDownEndsTheKeepersOfAllVersions(t *testing.T) {
	u := openPrevious(t)
	u.create(t, u.Witness)
	u.upgrade(t)
	img, err := u.Build(t.Context(), filepath.Join("..", "templates", "base"), false)
	noError(t, err, "build the template")
	u.create(t, img.ID)
	_, infos := u.keepers(t)
	noError(t, u.Close(), "close the engine")
	noError(t, lab.KillHard(infos[u.old].PID), "kill the previous keeper")
	o := u.Options()
	o.BinDir = u.present
	ended, err := local.Shutdown(t.Context(), o)
	if err != nil || ended != (local.Ended{Ran: true, Sandboxes: 2}) {
		t.Errorf("ended %+v, %v; want 2 sandboxes", ended, err)
	}
	if h, err := local.LookAt(t.Context(), o.RunDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there still is %+v, %v", h, err)
	}
	if _, err := os.Stat(filepath.Join(o.RunDir, "k")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the other keepers: %v", err)
	}
	u.open(t)
}

// runs checks that a program runs in a sandbox.
func (u *upgraded) runs(t *testing.T, id cube.SandboxID) {
	t.Helper()
	out, err := u.Run(t.Context(), id, "/bin/echo", "here")
	if err != nil || strings.TrimSpace(string(out.Stdout)) != "here" {
		t.Errorf("sandbox %s: got %q, %v", id, out.Stdout, err)
	}
}

package image

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

// kill runs a child that is to end itself at a place, and fails if it does not.
func kill(t *testing.T, point, do string, args ...string) {
	t.Helper()
	c := child(do, args...)
	c.Env = append(c.Env, failpoint.Env+"="+point+"=kill")
	err := c.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s at %s: got %v, want SIGKILL", do, point, err)
	}
}

func TestKilledAtAnyPlaceAnImageIsAbsentOrWhole(t *testing.T) {
	const absent, published, durable, hidden = "absent", "published", "durable", "hidden"
	for _, c := range []struct{ point, do, want string }{
		{"image/publish/verified", "publish", absent},
		{"image/publish/verified", "durable", absent},
		{"image/publish/synced", "durable", absent},
		{"image/publish/renamed", "publish", published},
		{"image/publish/renamed", "durable", durable},
		{"image/sync/synced", "sync", published},
		{"image/hide/hidden", "hide", hidden},
		{"image/delete/renamed", "delete", absent},
	} {
		t.Run(c.do+" "+c.point, func(t *testing.T) {
			s := open(t)
			kept := publishAll(t, s, false)
			id := cube.NewSnapshotID()
			if c.do != "publish" && c.do != "durable" {
				id = publishAll(t, s, false).ID
			}
			kill(t, c.point, c.do, s.dir, string(id))
			next := reopen(t, s.dir)
			im, err := next.Image(id)
			hid, herr := next.Hidden()
			got := published
			switch {
			case herr != nil:
				t.Fatal(herr)
			case len(hid) == 1 && hid[0] == id && errors.Is(err, cube.ErrNotFound):
				got = hidden
			case errors.Is(err, cube.ErrNotFound) && !exists(s.Dir(id)):
				got = absent
			case err != nil:
				t.Fatal(err)
			case im.Durable:
				got = durable
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got == published || got == durable {
				if err := errors.Join(next.Verify(background, id), next.Sync(background, id)); err != nil {
					t.Error(err)
				}
			}
			if err := errors.Join(next.Verify(background, kept.ID), use(next, kept.ID)); err != nil {
				t.Errorf("another image: %v", err)
			}
			wantNothingStaged(t, next)
			if g, err := next.Collect(background, true); err != nil || len(g) != 0 {
				t.Errorf("garbage is left: %v, %v", g, err)
			}
		})
	}
}

func TestEveryPlaceIsOneAtWhichSomebodyIsKilled(t *testing.T) {
	want := map[string]bool{}
	for _, p := range []string{"publish/verified", "publish/synced", "publish/renamed", "sync/synced", "hide/hidden", "delete/renamed",
		"add-disk/placed", "add-disk/named", "drop-memory/unnamed",
		"keep/renamed", "park/renamed", "free/unnamed", "fold/copied", "fold/placed", "fold/named"} {
		want["image/"+p] = true
	}
	for _, p := range failpoint.Names() {
		if !want[p] {
			t.Errorf("%s: no test kills there", p)
		}
		delete(want, p)
	}
	if len(want) != 0 {
		t.Errorf("there is no %v", want)
	}
}

// arm makes a place fail, once.
func arm(t *testing.T, point string) {
	t.Helper()
	if err := failpoint.Arm(point + "=error(as if)@1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { failpoint.Arm("") })
}

func TestWhatFailsBetweenTwoStepsIsUndone(t *testing.T) {
	for point, do := range map[string]func(s *Store, id cube.ImageID) error{
		"image/hide/hidden":    (*Store).Hide,
		"image/delete/renamed": (*Store).Delete,
		"image/sync/synced":    func(s *Store, id cube.ImageID) error { return s.Sync(background, id) },
	} {
		s := open(t)
		im := publishAll(t, s, false)
		arm(t, point)
		if err := do(s, im.ID); !errors.Is(err, failpoint.ErrInjected) {
			t.Fatalf("%s: got %v, want the error", point, err)
		}
		got, err := s.Image(im.ID)
		if err != nil || got.Durable {
			t.Errorf("%s: got %+v, %v; want the image as it was", point, got, err)
		}
		if err := use(s, im.ID); err != nil {
			t.Errorf("%s: %v", point, err)
		}
		wantNothingStaged(t, s)
		if err := do(s, im.ID); err != nil {
			t.Errorf("%s: the next time: %v", point, err)
		}
	}
	for _, point := range []string{"image/publish/verified", "image/publish/synced", "image/publish/renamed"} {
		s := open(t)
		id := cube.NewSnapshotID()
		w := begin(t, s, id)
		fill(t, w, 4096)
		arm(t, point)
		if _, err := w.Publish(background, cube.Image{}, true); !errors.Is(err, failpoint.ErrInjected) {
			t.Fatalf("%s: got %v, want the error", point, err)
		}
		wantGone(t, s, id)
		if exists(s.Dir(id)) {
			t.Errorf("%s: its directory is there", point)
		}
		wantNothingStaged(t, s)
	}
}

package durable

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// onFullDisk is a verb that needs room on disk.
type onFullDisk struct {
	do func(t *testing.T, in inside) error
	// whole looks at what a success has made, and takes it away.
	whole func(t *testing.T, in inside, st state)
	// slow: it is not tried with every mebibyte in CI, but with every eighth until it
	// succeeds, and then with each of the eight before.
	slow bool
}

// numbers are what differs from one error to the next.
var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// roomy is where a verb that still fails does so for another reason, in MiB.
const roomy = 600

// TestAFullDiskLeavesWhatWasThere: with n MiB free, for n = 0, 1, 2 and so on until the
// verb succeeds. Where it fails, the error says what to do, the source answers as
// before, and there is neither an image nor a sandbox more or less; where it succeeds,
// what it made is whole.
func TestAFullDiskLeavesWhatWasThere(t *testing.T) {
	for name, verb := range onFullDisks(t) {
		t.Run(name, func(t *testing.T) {
			s.Guard(t)
			in, st := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
			refused, where := 0, map[string]int{}
			try := func(free int64) (fits bool) {
				before := look(t)
				undo := s.LeaveFree(t, free)
				err := verb.do(t, in)
				if err == nil {
					undo()
					verb.whole(t, in, st)
					return true
				}
				in.same(t, st)
				undo()
				isNoSpace(t, free, err)
				if now := look(t); !slices.Equal(now, before) {
					t.Errorf("%d bytes free: afterwards there is\n%q\nbefore there was\n%q", free, now, before)
				}
				refused++
				where[numbers.ReplaceAllString(err.Error(), "…")]++
				return false
			}
			for n := int64(0); n < roomy && !t.Failed(); n = next(n, verb.slow) {
				if !try(n << 20) {
					continue
				}
				for _, free := range verb.edge(n) {
					try(free)
				}
				t.Logf("%d times refused; done with %d MiB free", refused, n)
				for _, text := range slices.Sorted(maps.Keys(where)) {
					t.Logf("%5d %s", where[text], text)
				}
				if err := verb.do(t, in); err != nil { // with all the room there is
					t.Fatal(err)
				}
				verb.whole(t, in, st)
				restart(t)
				in.same(t, st)
				return
			}
			t.Fatalf("it never fits")
		})
	}
}

// next is how much room is left after n was tried, in MiB.
func next(n int64, slow bool) int64 {
	switch {
	case lab.Form() == "" && slow:
		return n + 48
	case lab.Form() == "" && n > 2:
		return n * 3 / 2
	case lab.Form() == "ci" && slow:
		return n + 8
	}
	return n + 1
}

// edge is what is tried around the least room, in bytes, that is enough: there a verb
// fails in the midst of its work.
func (v onFullDisk) edge(mib int64) (out []int64) {
	from, step := mib<<20-2<<20, int64(64<<10)
	switch {
	case lab.Form() == "" && v.slow:
		return nil
	case v.slow:
		from, step = mib<<20-8<<20, 1<<20
	case lab.Form() == "":
		step = 512 << 10
	}
	for free := max(from, 0); free < mib<<20; free += step {
		out = append(out, free)
	}
	return out
}

func onFullDisks(t *testing.T) map[string]onFullDisk {
	var snap client.Snapshot
	var clones []client.Sandbox
	var made client.Sandbox
	var tpl cube.ImageID
	dir := variants(t, "roomy")[0]
	child := func(t *testing.T, b client.Sandbox, st state) {
		t.Helper()
		inside{s, b}.same(t, st)
		if err := s.API.Kill(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
	}
	return map[string]onFullDisk{
		"snapshot": {
			do: func(t *testing.T, in inside) (err error) {
				snap, err = s.API.Snapshot(t.Context(), in.b.ID, "")
				return err
			},
			whole: func(t *testing.T, _ inside, st state) {
				if _, err := s.API.VerifyImage(t.Context(), string(snap.ID)); err != nil {
					t.Error(err)
				}
				b, err := s.API.Create(t.Context(), client.NewSandbox{Template: string(snap.ID)})
				if err != nil {
					t.Fatal(err)
				}
				child(t, b, st)
				remove(t, snap.ID)
			},
		},
		"pause": {
			do: func(t *testing.T, in inside) error { return s.API.Pause(t.Context(), in.b.ID) },
			whole: func(t *testing.T, in inside, st state) {
				if _, err := s.API.Resume(t.Context(), in.b.ID, 0); err != nil {
					t.Fatal(err)
				}
				in.same(t, st)
			},
		},
		"clone": {
			do: func(t *testing.T, in inside) (err error) {
				clones, err = s.API.Clone(t.Context(), in.b.ID, client.Cloning{Count: 2})
				return err
			},
			whole: func(t *testing.T, _ inside, st state) {
				for _, b := range clones {
					child(t, b, st)
				}
			},
		},
		"create": {
			do: func(t *testing.T, _ inside) (err error) {
				made, err = s.API.Create(t.Context(), client.NewSandbox{Template: "base"})
				return err
			},
			whole: func(t *testing.T, _ inside, _ state) {
				if _, err := (inside{s, made}).run(t.Context(), "/bin/true"); err != nil {
					t.Error(err)
				}
				if err := s.API.Kill(t.Context(), made.ID); err != nil {
					t.Error(err)
				}
			},
		},
		"template": {
			slow: true,
			do: func(*testing.T, inside) (err error) {
				tpl, err = buildTemplate(s, dir)
				return err
			},
			whole: func(t *testing.T, _ inside, _ state) {
				if _, err := s.API.VerifyImage(t.Context(), "roomy"); err != nil {
					t.Error(err)
				}
				b, err := s.API.Create(t.Context(), client.NewSandbox{Template: "roomy"})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.API.Kill(t.Context(), b.ID); err != nil {
					t.Error(err)
				}
				remove(t, tpl)
			},
		},
	}
}

func remove(t *testing.T, id cube.ImageID) {
	t.Helper()
	if err := s.API.DeleteImage(t.Context(), string(id)); err != nil {
		t.Error(err)
	}
}

// isNoSpace: the error is what it is, in one line that says what to do.
func isNoSpace(t *testing.T, free int64, err error) {
	t.Helper()
	var said *client.Error
	if errors.As(err, &said) && (!errors.Is(err, cube.ErrNoSpace) || strings.Contains(said.Message, "\n")) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "free space") {
		t.Errorf("%d bytes free: got %v, want that no space is left, and to free some", free, err)
	}
}

// look is all that is there: images, sandboxes with their state, snapshots.
func look(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{"images", "staging", "rootfs", "names"} {
		entries, err := os.ReadDir(filepath.Join(s.Where.StateDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, dir+"/"+e.Name())
		}
	}
	boxes, err := s.API.List(t.Context(), client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		out = append(out, fmt.Sprintf("%s %s", b.ID, b.State))
	}
	snaps, err := s.API.Snapshots(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, sn := range snaps {
		out = append(out, string(sn.ID))
	}
	return out
}

// restart stops the server in an orderly way and starts it again.
func restart(t *testing.T) {
	t.Helper()
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAFullDiskKeepsNobodyFromMakingRoom: with nothing free at all, sandboxes that run
// and that are paused can be killed and snapshots deleted, their bytes come back, and
// the server can be stopped and started.
func TestAFullDiskKeepsNobodyFromMakingRoom(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	running, st := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	stays, stayed := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	paused, _ := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	snap, err := s.API.Snapshot(ctx, running.b.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []client.Sandbox{paused.b, stays.b} {
		if err := s.API.Pause(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
	}
	undo := s.FillDisk(t)
	restart(t)
	running.same(t, st)
	before, err := s.Free()
	if err != nil {
		t.Fatal(err)
	}
	for _, free := range []func() error{
		func() error { return s.API.Kill(ctx, paused.b.ID) },
		func() error { return s.API.DeleteImage(ctx, string(snap.ID)) },
		func() error { return s.API.Kill(ctx, running.b.ID) },
	} {
		if err := free(); err != nil {
			t.Error(err)
		}
	}
	if after, err := s.Free(); err != nil || after < before+16<<20 {
		t.Errorf("%d bytes were free, and are %d after two images were deleted (%v)", before, after, err)
	}
	undo()
	restart(t)
	for _, b := range []client.Sandbox{paused.b, running.b} {
		if _, err := s.API.Get(ctx, b.ID); !errors.Is(err, cube.ErrNotFound) {
			t.Errorf("%s was killed, and is there: %v", b.ID, err)
		}
	}
	if _, err := s.API.Resume(ctx, stays.b.ID, 0); err != nil {
		t.Fatal(err)
	}
	stays.same(t, stayed)
}

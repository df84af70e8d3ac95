package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/failpoint"
	"cubesandbox/internal/fdrpc"
)

func TestWhereFilesDoNotFitBesideTheirMemory(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "dd if=/dev/urandom of=/root/f bs=1M count=150 status=none; md5sum /root/f >/root/sum; sync")
	before := l.Check(t, id)
	c := connect(t, id)
	gs := groups(t, lifeOf(t, id))
	room := limit(t, gs, "memory", "memory.limit_in_bytes", "memory.max")
	undo := littleRoom(t, id)
	_, err := l.Engine.Pause(t.Context(), id, cube.NewSnapshotID(), cube.Pausing{FilesOnly: true})
	c.works()
	undo()
	if !errors.Is(err, cube.ErrNoSpace) {
		t.Errorf("a pause that keeps files alone: got %v, want no space", err)
	}
	answersAsBefore(t, id, before, c)
	if now := limit(t, gs, "memory", "memory.limit_in_bytes", "memory.max"); now != room {
		t.Errorf("the host allows %d MiB of memory after it, and did %d MiB before", now>>20, room>>20)
	}
	undo = littleRoom(t, id)
	img, err := l.Engine.Pause(t.Context(), id, cube.NewSnapshotID(), cube.Pausing{})
	undo()
	noError(t, err, "pause")
	if img.FilesBytes != 0 || img.PagesBytes < 150<<20 {
		t.Errorf("got %+v, want its memory alone", img)
	}
	resume(t, id, 2, img.ID, false)
	sh(t, id, "md5sum -c /root/sum")
}

// littleRoom leaves room on disk for the memory of a sandbox and for what is set aside
// beside it, and 40 MiB.
func littleRoom(t *testing.T, id cube.SandboxID) (undo func()) {
	t.Helper()
	state, err := os.Open(l.StateDir())
	noError(t, err, "open the state directory")
	defer state.Close()
	// What was removed is free when that has been committed.
	noError(t, unix.Syncfs(int(state.Fd())), "sync")
	u, err := l.Engine.Usage(t.Context(), id)
	noError(t, err, "usage")
	return l.LeaveFree(t, u.GuestMemory+u.GuestFiles+(64+40)<<20)
}

// armed has a place do something until the function that it returns is called.
func armed(t *testing.T, spec string) (disarm func()) {
	t.Helper()
	noError(t, failpoint.Arm(spec), "arm")
	t.Cleanup(func() { failpoint.Arm("") })
	return func() { noError(t, failpoint.Arm(""), "disarm") }
}

func TestAColdBootThatFailsLeavesTheImageAlone(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "echo kept >/root/kept")
	img := pause(t, id, cube.Pausing{FilesOnly: true})
	for _, place := range []string{"booted", "files-sent", "labelled"} {
		disarm := armed(t, "engine/create/"+place+"=error(here)")
		_, err := l.Engine.Resume(t.Context(), cube.CreateSpec{ID: id, Generation: 2, Image: img.ID, Files: true})
		disarm()
		if !errors.Is(err, failpoint.ErrInjected) {
			t.Errorf("%s: got %v", place, err)
		}
		noSandbox(t, id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Engine.Resume(ctx, cube.CreateSpec{ID: id, Generation: 2, Image: img.ID, Files: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	noSandbox(t, id)
	resume(t, id, 2, img.ID, true)
	if got := sh(t, id, "cat /root/kept"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestASandboxWhoseSentryEndsAfterItsMemoryWasSavedIsPaused(t *testing.T) {
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprintf("files only %v", only), func(t *testing.T) {
			l.Guard(t)
			id := witness(t)
			before := l.Check(t, id)
			events := l.Engine.Events(t.Context())
			const place = "engine/pause/saved"
			passes := failpoint.Passes(place)
			armed(t, place+"=sleep(700ms)")
			killed := make(chan error, 1)
			go func() {
				for failpoint.Passes(place) == passes {
					if t.Context().Err() != nil {
						killed <- t.Context().Err()
						return
					}
				}
				killed <- l.KillSentry(t.Context(), id)
			}()
			img := pause(t, id, cube.Pausing{FilesOnly: only})
			noError(t, <-killed, "kill the sentry")
			if img.FilesOnly || img.FilesBytes != 0 || img.PagesBytes == 0 {
				t.Errorf("got %+v, want its memory alone", img)
			}
			resume(t, id, 2, img.ID, false)
			if got := l.Check(t, id); got.Identity != before.Identity || got.PID != before.PID {
				t.Errorf("got %+v, want %+v", got, before)
			}
			select {
			case ev := <-events:
				t.Errorf("got event %+v of a sandbox that was paused", ev)
			default:
			}
		})
	}
}

func TestWhereASentryHasEndedByItsFilesAPauseCannotBeTakenBack(t *testing.T) {
	l.Guard(t)
	id := small(t, func(l *cube.Limits) { l.MemoryMiB, l.Pids = 128, 64 })
	sh(t, id, "truncate -s 3G /root/huge; echo precious >/root/precious")
	disarm := armed(t, "engine/pause/files=error(here)")
	img := pause(t, id, cube.Pausing{})
	disarm()
	if img.FilesBytes != 0 || img.PagesBytes == 0 || !img.Durable {
		t.Errorf("got %+v, want its memory, durable", img)
	}
	resume(t, id, 2, img.ID, false)
	if got := sh(t, id, "cat /root/precious"); got != "precious" {
		t.Errorf("got %q", got)
	}
}

func TestAServerThatIsKilledWhenItsFilesHaveEndedASentryCostsNothing(t *testing.T) {
	l.Guard(t)
	b := diePausing(t, "engine/pause/files=kill", "truncate -s 3G /root/huge")
	noError(t, l.Take(t.Context()), "open the engine again")
	noSandbox(t, b.id)
	resume(t, b.id, 2, b.image, false)
	if got := l.Check(t, b.id); got.Identity != b.life.Identity || got.Uses != b.life.Uses+1 {
		t.Errorf("got %+v after %+v", got, b.life)
	}
}

func TestHolesKeepAPauseNoLongerThanADiskIsLarge(t *testing.T) {
	l.Guard(t)
	id := small(t, func(l *cube.Limits) { l.MemoryMiB, l.Pids, l.DiskMiB = 128, 64, 64 })
	sh(t, id, "seq -f /root/hole%g 300 | xargs truncate -s 20M; echo precious >/root/precious")
	img := pause(t, id, cube.Pausing{})
	if img.FilesBytes != 0 || img.PagesBytes == 0 {
		t.Errorf("got %+v, want its memory alone", img)
	}
	resume(t, id, 2, img.ID, false)
	_, err := l.Engine.Pause(t.Context(), id, cube.NewSnapshotID(), cube.Pausing{FilesOnly: true})
	if err == nil || !strings.Contains(err.Error(), "holes") {
		t.Errorf("files alone: got %v, want that they have holes", err)
	}
	if got := sh(t, id, "cat /root/precious; stat -c %s /root/hole300"); got != fmt.Sprintf("precious\n%d", 20<<20) {
		t.Errorf("got %q", got)
	}
}

// TestAKillDoesNotWaitForTheFilesOfAPause: nor where it comes just before they are begun.
func TestAKillDoesNotWaitForTheFilesOfAPause(t *testing.T) {
	for place, action := range map[string]string{
		"image/publish/renamed":  "error(here)@1000000",
		"engine/pause/published": "sleep(1s)",
	} {
		t.Run(place, func(t *testing.T) { killBeyond(t, place, action) })
	}
}

// killBeyond kills a sandbox once its pause has passed a place.
func killBeyond(t *testing.T, place, action string) {
	l.Guard(t)
	id := small(t, func(l *cube.Limits) { l.MemoryMiB, l.DiskMiB = 256, 1<<24 })
	// Much longer than a test may take.
	sh(t, id, "seq -f /root/hole%g 4000 | xargs truncate -s 50M")
	armed(t, place+"="+action)
	passes := failpoint.Passes(place)
	paused := make(chan error, 1)
	im := cube.NewSnapshotID()
	go func() {
		_, err := l.Engine.Pause(t.Context(), id, im, cube.Pausing{})
		paused <- err
	}()
	noError(t, lab.Until(20*time.Second, "its memory is published", func() error {
		if failpoint.Passes(place) == passes {
			return errors.New("not yet")
		}
		return nil
	}), "wait")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := l.Engine.Kill(ctx, id); err != nil && !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("kill: %v", err)
	}
	noError(t, <-paused, "pause")
	noSandbox(t, id)
	img, err := l.Images.Image(im)
	if err != nil || img.FilesBytes != 0 {
		t.Errorf("got %+v, %v; want its memory alone", img, err)
	}
}

func TestASentryIsGivenAPipeForItsFilesAndNothingElse(t *testing.T) {
	l.Guard(t)
	life := lifeOf(t, witness(t))
	rpc, err := fdrpc.Dial(t.Context(), filepath.Join(l.Options().RunDir, "keeper.sock"), keeperapi.Protocol, keeperapi.Version, nil)
	noError(t, err, "dial the keeper")
	defer rpc.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	noError(t, err, "create")
	defer f.Close()
	_, err = rpc.Call(t.Context(), keeperapi.MethodFiles, keeperapi.Ref{Life: life.Life}, []*os.File{f}, nil)
	if fdrpc.Code(err) != keeperapi.CodeInvalid || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("got %v, want that it is refused", err)
	}
	// A reader that goes fails the call, and the sandbox runs on.
	r, w, err := os.Pipe()
	noError(t, err, "pipe")
	r.Close()
	_, err = rpc.Call(t.Context(), keeperapi.MethodFiles, keeperapi.Ref{Life: life.Life}, []*os.File{w}, nil)
	w.Close()
	if err == nil || fdrpc.Code(err) == keeperapi.CodeDead {
		t.Errorf("got %v, want that it could not be written", err)
	}
	l.Check(t, life.Labels.Sandbox)
}

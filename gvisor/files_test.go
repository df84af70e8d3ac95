package gvisor

import (
	"archive/tar"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

// pausable is an engine with a sandbox that can be saved, and the tar of its files is
// what a function writes.
func pausable(t *testing.T, files func(w *os.File) error) (*Engine, *fakeKeeper) {
	t.Helper()
	e, f := fakeEngine(t, 1<<40)
	f.on(keeperapi.MethodSave, func(_ context.Context, r *fdrpc.Request) error {
		for _, w := range r.Files {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return err
			}
		}
		return nil
	})
	says := func(out any) fdrpc.Handler {
		return func(context.Context, *fdrpc.Request) (any, []*os.File, error) { return out, nil, nil }
	}
	f.mu.Lock()
	f.answer[keeperapi.MethodLabel], f.answer[keeperapi.MethodUsage] = says(current(lifeA, 1, frozen)), says(keeperapi.Usage{})
	f.mu.Unlock()
	f.Handle(keeperapi.MethodFiles, func(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
		return nil, nil, files(r.Files[0])
	})
	e.enter(newSandbox(e.keepers.current, current(lifeA, 1, keeperapi.StateRunning)))
	return e, f
}

// tarOf writes a tar of empty files.
func tarOf(names ...string) func(w *os.File) error {
	return func(w *os.File) error {
		tw := tar.NewWriter(w)
		for _, name := range names {
			if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600}); err != nil {
				return err
			}
		}
		return tw.Close()
	}
}

func TestFilesThatCouldNotBePutBackDoNotReplaceMemory(t *testing.T) {
	for _, c := range []struct {
		files     func(w *os.File) error
		filesOnly bool
	}{
		{tarOf("./fine"), true},
		{tarOf("./fine", "./../bad"), false},
		{func(w *os.File) error { _, err := w.WriteString(strings.Repeat("no tar", 200)); return err }, false},
	} {
		e, _ := pausable(t, c.files)
		im := cube.NewSnapshotID()
		got, err := e.Pause(t.Context(), boxID, im, cube.Pausing{FilesOnly: true})
		if err != nil || got.FilesOnly != c.filesOnly || got.FilesBytes > 0 != c.filesOnly || got.PagesBytes > 0 == c.filesOnly {
			t.Errorf("got %+v, %v; want files only %v", got, err, c.filesOnly)
		}
		if now, err := e.images.Image(im); err != nil || now.FilesOnly != c.filesOnly || !now.Durable {
			t.Errorf("the image is %+v, %v", now, err)
		}
		if err := e.images.Verify(t.Context(), im); err != nil && !strings.Contains(err.Error(), "file system") {
			t.Error(err)
		}
	}
}

func TestTheMemoryOfAPauseIsSafeBeforeAnythingIsAskedOfItsSentry(t *testing.T) {
	im := cube.NewSnapshotID()
	var e *Engine
	safe := errors.New("it was not asked")
	e, _ = pausable(t, func(w *os.File) error {
		now, err := e.images.Image(im)
		if err == nil && !now.Durable {
			err = errors.New("it is not durable")
		}
		safe = err
		return tarOf("./fine")(w)
	})
	got, err := e.Pause(t.Context(), boxID, im, cube.Pausing{})
	if err != nil || got.FilesBytes == 0 || got.PagesBytes == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if safe != nil {
		t.Errorf("when the sentry was asked for its files: %v", safe)
	}
}

func TestAPauseWithoutFilesIsUndoneWhereItsSandboxRunsOn(t *testing.T) {
	failed := errors.New("no files")
	e, f := pausable(t, func(*os.File) error { return failed })
	resumed := make(chan string, 1)
	f.on(keeperapi.MethodResume, func(_ context.Context, r *fdrpc.Request) error {
		var q keeperapi.Ref
		err := r.Decode(&q)
		resumed <- q.Life
		return err
	})
	im := cube.NewSnapshotID()
	if got, err := e.Pause(t.Context(), boxID, im, cube.Pausing{FilesOnly: true}); err == nil || !strings.Contains(err.Error(), failed.Error()) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := soon(t, resumed, "it runs on"); got != lifeA {
		t.Errorf("%s runs on", got)
	}
	if now, err := e.images.Image(im); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("there is %+v, %v", now, err)
	}
}

// TestWhatIsLeftOfADeadSandboxIsPublished: whoever asked for its pause has gone, and
// its sentry too.
func TestWhatIsLeftOfADeadSandboxIsPublished(t *testing.T) {
	for _, filesOnly := range []bool{false, true} {
		e, f := pausable(t, tarOf("./fine"))
		ctx, cancel := context.WithCancel(t.Context())
		save := f.answer[keeperapi.MethodSave]
		f.on(keeperapi.MethodSave, func(ctx context.Context, r *fdrpc.Request) error {
			_, _, err := save(ctx, r)
			f.on(keeperapi.MethodUsage, func(context.Context, *fdrpc.Request) error {
				return fdrpc.Errorf(keeperapi.CodeDead, "it was killed")
			})
			cancel()
			return err
		})
		im := cube.NewSnapshotID()
		got, err := e.Pause(ctx, boxID, im, cube.Pausing{FilesOnly: filesOnly})
		if err != nil || got.PagesBytes == 0 || got.FilesOnly {
			t.Errorf("files only %v: got %+v, %v", filesOnly, got, err)
		}
		if now, err := e.images.Image(im); err != nil || !now.Durable {
			t.Errorf("files only %v: the image is %+v, %v", filesOnly, now, err)
		}
	}
}

func TestAnImageWhoseFileSystemIsGoneIsCorruptByName(t *testing.T) {
	e, _ := fakeEngine(t, 0)
	sh := shape{engine: "v1", rootfs: strings.Repeat("a", 64)}
	im := cube.NewSnapshotID()
	_, err := e.bootLife(t.Context(), e.keepers.current, sh, keeperapi.Labels{Image: im})
	var bad *cube.CorruptError
	if !errors.As(err, &bad) || bad.Image != im || !strings.Contains(bad.File, sh.rootfs) {
		t.Errorf("of an image: got %v", err)
	}
	if _, err := e.bootLife(t.Context(), e.keepers.current, sh, keeperapi.Labels{}); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("of no image: got %v", err)
	}
}

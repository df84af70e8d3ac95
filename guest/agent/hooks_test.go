package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/spawn"

	"golang.org/x/sys/unix"
)

// said is one event, as a text.
func said(kind, detail string) string { return kind + " " + detail }

// hooksIn are the hooks of a root file system of the test's, which run runs.
func hooksIn(t *testing.T, files map[string]os.FileMode, run func(ctx context.Context, name string) ([]byte, unix.WaitStatus, error)) (*hooks, *[]string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, hooksDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	var events []string
	h := newHooks(func(ctx context.Context, q spawn.Request, _ int) ([]byte, unix.WaitStatus, error) {
		return run(ctx, filepath.Base(q.Cmd))
	}, func(kind, detail string) { events = append(events, said(kind, detail)) })
	h.root, h.owner = root, uint32(os.Getuid())
	return h, &events
}

func TestHooksRunInTheOrderOfTheirNames(t *testing.T) {
	var ran []string
	h, events := hooksIn(t, map[string]os.FileMode{"20-b": 0o755, "10-a": 0o700, "3_c.sh": 0o555}, func(_ context.Context, name string) ([]byte, unix.WaitStatus, error) {
		ran = append(ran, name)
		return []byte("hello\n\x1b[2J"), unix.WaitStatus(len(ran)-1) << 8, nil
	})
	h.runAll("id", 7)
	if !slices.Equal(ran, []string{"10-a", "20-b", "3_c.sh"}) {
		t.Errorf("ran %q", ran)
	}
	for i, want := range []string{
		said(agentapi.EventHook, hooksDir+"/10-a: done after "),
		said(agentapi.EventHookFailed, hooksDir+"/20-b: exit status 1 after "),
		said(agentapi.EventHookFailed, hooksDir+"/3_c.sh: exit status 2 after "),
	} {
		if got := (*events)[i]; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `; it said "hello\n\x1b[2J"`) {
			t.Errorf("event %q, want %q", got, want)
		}
	}
}

func TestOnlyWhatRootAloneCanChangeIsAHook(t *testing.T) {
	h, events := hooksIn(t, map[string]os.FileMode{
		"good": 0o755, "group": 0o775, "world": 0o757, "text": 0o644, "back~": 0o755, ".hidden": 0o755, "two words": 0o755,
	}, func(context.Context, string) ([]byte, unix.WaitStatus, error) { return nil, 0, nil })
	dir := filepath.Join(h.root, hooksDir)
	err := errors.Join(os.Symlink("good", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "dir"), 0o755),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	names, ignored := h.find()
	if !slices.Equal(names, []string{"good"}) || len(ignored) != 9 {
		t.Errorf("hooks %q; ignored %q", names, ignored)
	}
	for name, why := range map[string]string{
		"group": "others than root may write", "world": "others than root may write", "text": "may not execute", "back~": "name", ".hidden": "name",
		"two words": "name", "link": "regular", "dir": "regular", "fifo": "regular",
	} {
		if !slices.ContainsFunc(ignored, func(s string) bool { return strings.HasPrefix(s, `"`+name+`": `) && strings.Contains(s, why) }) {
			t.Errorf("%s is not said to be none because of %q: %q", name, why, ignored)
		}
	}
	if h.runAll("id", 1); len(*events) != 2 || !strings.Contains((*events)[0], "and 4 more") {
		t.Errorf("events %q", *events)
	}
	h.owner++
	if names, ignored := h.find(); len(names) != 0 || len(ignored) != 1 || !strings.Contains(ignored[0], "/etc: root does not own it") {
		t.Errorf("somebody else's: hooks %q; ignored %q", names, ignored)
	}
}

func TestAFolderThatOthersCanChangeHasNoHooks(t *testing.T) {
	none := func(context.Context, string) ([]byte, unix.WaitStatus, error) {
		t.Error("a hook runs")
		return nil, 0, nil
	}
	for name, spoil := range map[string]func(root string) error{
		"world may write to it":    func(root string) error { return os.Chmod(root+hooksDir, 0o777) },
		"world may write above it": func(root string) error { return os.Chmod(root+"/etc/cube", 0o777) },
		"it is a link": func(root string) error {
			return errors.Join(os.Rename(root+hooksDir, root+"/elsewhere"), os.Symlink(root+"/elsewhere", root+hooksDir))
		},
		"a link leads to it": func(root string) error {
			return errors.Join(os.Rename(root+"/etc/cube", root+"/cube"), os.Symlink(root+"/cube", root+"/etc/cube"))
		},
		"it is a file": func(root string) error {
			return errors.Join(os.RemoveAll(root+hooksDir), os.WriteFile(root+hooksDir, nil, 0o755))
		},
		"it has too many": func(root string) (err error) {
			for i := range maxEntries + 1 {
				err = errors.Join(err, os.WriteFile(fmt.Sprint(root, hooksDir, "/", i), nil, 0o755))
			}
			return err
		},
	} {
		h, events := hooksIn(t, map[string]os.FileMode{"10-a": 0o755}, none)
		if err := spoil(h.root); err != nil {
			t.Fatal(err)
		}
		if h.runAll("id", 1); len(*events) != 1 || !strings.HasPrefix((*events)[0], said(agentapi.EventHookFailed, "not run in "+hooksDir+": any file")) {
			t.Errorf("%s: events %q", name, *events)
		}
	}
}

func TestNoFolderNoEvent(t *testing.T) {
	h, events := hooksIn(t, nil, nil)
	h.runAll("id", 1) // an empty one
	if err := os.RemoveAll(filepath.Join(h.root, "etc")); err != nil {
		t.Fatal(err)
	}
	if h.runAll("id", 1); len(*events) != 0 {
		t.Errorf("events %q", *events)
	}
}

func TestHooksHaveATimeLimitEachAndTogether(t *testing.T) {
	var ran []string
	h, events := hooksIn(t, map[string]os.FileMode{"1": 0o755, "2": 0o755, "3": 0o755, "4": 0o755}, func(ctx context.Context, name string) ([]byte, unix.WaitStatus, error) {
		ran = append(ran, name)
		if name == "1" {
			return nil, 0, nil
		}
		<-ctx.Done()
		return []byte("hangs"), unix.WaitStatus(unix.SIGKILL), ctx.Err()
	})
	h.each, h.all = 200*time.Millisecond, 300*time.Millisecond
	began := time.Now()
	h.runAll("id", 1)
	if took := time.Since(began); took < h.all || took > 20*h.all {
		t.Errorf("they took %v", took)
	}
	if !slices.Equal(ran, []string{"1", "2", "3"}) || len(*events) != 4 {
		t.Fatalf("ran %q, events %q", ran, *events)
	}
	for i, want := range []string{"/1: done", "/2: killed: a hook may take 200ms; it said", "/3: killed after ", "4: those before took all of the 300ms"} {
		if !strings.Contains((*events)[i], want) {
			t.Errorf("event %q, want %q", (*events)[i], want)
		}
	}
}

func TestWhatAHookSaysIsBounded(t *testing.T) {
	h, events := hooksIn(t, map[string]os.FileMode{"a": 0o755}, func(context.Context, string) ([]byte, unix.WaitStatus, error) {
		return []byte(strings.Repeat("\x00\n", maxHookOutput/2)), 0, nil
	})
	if h.runAll("id", 1); len((*events)[0]) > maxHookOutput+200 || strings.Contains((*events)[0], "\n") {
		t.Errorf("an event of %d bytes", len((*events)[0]))
	}
}

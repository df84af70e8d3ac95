package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// direct runs work as whoever runs the test, on a thread with a current directory of
// its own, which ends with the work.
type direct struct{ home string }

func (d direct) Do(_ context.Context, name string, f func(users.User) error) error {
	if name != "user" {
		return fmt.Errorf("%w: '%s'", users.ErrUnknown, name)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- err
			return
		}
		done <- f(users.User{Name: name, Home: d.home})
	}()
	return <-done
}

func describe() func(string) *filesystem.EntryInfo {
	return func(path string) *filesystem.EntryInfo {
		info, err := os.Lstat(path)
		if err != nil {
			return nil
		}
		return &filesystem.EntryInfo{Name: info.Name(), Path: path, Size: info.Size()}
	}
}

func newSet(t *testing.T) (*Set, string) {
	t.Helper()
	home := t.TempDir()
	return NewSet(direct{home}, describe), home
}

func open(t *testing.T, s *Set, path string, o Options) *Watcher {
	t.Helper()
	w, err := s.Open(t.Context(), "user", path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// until takes events until all of these have come, and returns all.
func until(t *testing.T, w *Watcher, wanted ...string) (lines []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		events, err := w.Take()
		for _, e := range events {
			lines = append(lines, line(e))
		}
		missing := slices.DeleteFunc(slices.Clone(wanted), func(want string) bool { return slices.Contains(lines, want) })
		if len(missing) == 0 {
			return lines
		}
		if err != nil {
			t.Fatalf("after %q: %v", lines, err)
		}
		if events == nil && w.Wait(ctx) != nil {
			t.Fatalf("%q did not come, only %q", missing, lines)
		}
	}
}

func line(e Event) string {
	kind := strings.ToLower(strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_"))
	if e.Entry != nil {
		return fmt.Sprintf("%s %s %d", kind, e.Name, e.Entry.Size)
	}
	return kind + " " + e.Name
}

func do(t *testing.T, steps ...error) {
	t.Helper()
	for i, err := range steps {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

func file(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

func TestEveryKindOfChangeIsReportedByItsName(t *testing.T) {
	s, home := newSet(t)
	do(t, os.Mkdir(home+"/d", 0o755), file(home+"/d/old", "x"))
	w := open(t, s, "d", Options{})
	do(t, file(home+"/d/a", "text"), os.Chmod(home+"/d/a", 0o600), os.Rename(home+"/d/a", home+"/d/b"), os.Remove(home+"/d/old"),
		os.Mkdir(home+"/d/sub", 0o755), file(home+"/d/sub/unseen", ""), os.Rename(home+"/d/b", home+"/b"), os.Remove(home+"/d/sub/unseen"), os.Remove(home+"/d/sub"), file(home+"/d/end", ""))
	got := until(t, w, "create end")
	want := []string{"create a", "write a", "chmod a", "rename a", "create b", "remove old", "create sub", "rename b", "remove sub", "create end"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheWatchedDirectoryItselfIsADot(t *testing.T) {
	s, home := newSet(t)
	do(t, os.Mkdir(home+"/d", 0o755))
	w := open(t, s, "d", Options{Recursive: true})
	do(t, os.Chmod(home+"/d", 0o700), os.Rename(home+"/d", home+"/e"), os.Remove(home+"/e"))
	if got, want := until(t, w, "remove ."), []string{"chmod .", "rename .", "remove ."}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	<-w.done
	if got, err := w.Take(); got != nil || !errors.Is(err, ErrGone) {
		t.Errorf("then %v, %v", got, err)
	}
	if s.watches != 0 {
		t.Errorf("%d watches are held", s.watches)
	}
}

func TestADirectoryBelowThatIsRemovedEndsNothing(t *testing.T) {
	s, home := newSet(t)
	do(t, os.Mkdir(home+"/d", 0o755))
	w := open(t, s, "~", Options{Recursive: true})
	do(t, os.Remove(home+"/d"), os.Mkdir(home+"/d", 0o755))
	until(t, w, "remove d", "create d")
	do(t, file(home+"/d/f", ""))
	until(t, w, "create d/f")
}

func TestEntriesComeWithWhatIsThere(t *testing.T) {
	s, home := newSet(t)
	w := open(t, s, "~", Options{Entries: true})
	do(t, file(home+"/a", "1234"))
	until(t, w, "write a 4")
	do(t, os.Chmod(home+"/a", 0o600), os.Remove(home+"/a"), file(home+"/end", ""))
	got := until(t, w, "create end 0")
	// By the time that the change of mode is read, the file may be gone.
	if i := slices.Index(got, "remove a"); i < 1 || got[i-1] != "chmod a 4" && got[i-1] != "chmod a" {
		t.Errorf("got %q", got)
	}
}

func TestARecursiveWatchSeesWhatWasThereAndWhatIsMadeLater(t *testing.T) {
	s, home := newSet(t)
	do(t, os.MkdirAll(home+"/d/was/there", 0o755))
	w := open(t, s, "d", Options{Recursive: true})
	do(t, file(home+"/d/was/there/f", ""))
	until(t, w, "create was/there/f")
	// All at once: no watch of the new directories can exist yet.
	do(t, os.MkdirAll(home+"/d/new/a/b/c", 0o755), file(home+"/d/new/a/b/c/f", ""), file(home+"/d/new/g", ""))
	got := until(t, w, "create new/a/b/c/f", "create new/g")
	for _, want := range []string{"create new", "create new/a", "create new/a/b", "create new/a/b/c"} {
		if n := count(got, want); n != 1 {
			t.Errorf("%q came %d times in %q", want, n, got)
		}
	}
	do(t, file(home+"/d/new/a/b/c/f", "changed"))
	until(t, w, "write new/a/b/c/f")
}

func count(lines []string, of string) (n int) {
	for _, l := range lines {
		if l == of {
			n++
		}
	}
	return n
}

// TestNothingThatIsMadeFastIsMissedOrToldTwice: a tree is made while its watches are.
func TestNothingThatIsMadeFastIsMissedOrToldTwice(t *testing.T) {
	s, home := newSet(t)
	w := open(t, s, "~", Options{Recursive: true})
	want := map[string]int{}
	for i := range 30 {
		dir := fmt.Sprintf("%d", i)
		for j := range 10 {
			do(t, os.MkdirAll(filepath.Join(home, dir), 0o755), file(filepath.Join(home, dir, "f"), ""))
			want["create "+dir], want["create "+dir+"/f"] = 1, 1
			dir += fmt.Sprintf("/%d", j)
		}
	}
	do(t, file(home+"/end", ""))
	got := map[string]int{}
	for _, l := range until(t, w, "create end") {
		got[l]++
	}
	want["create end"] = 1
	if !maps.Equal(got, want) {
		for l, n := range want {
			if got[l] != n {
				t.Errorf("%q came %d times", l, got[l])
			}
		}
		t.Errorf("got %d different events, want %d", len(got), len(want))
	}
}

func TestAMovedDirectoryIsFollowedWithinTheTreeAndLeftOutside(t *testing.T) {
	s, home := newSet(t)
	do(t, os.MkdirAll(home+"/d/a/deep", 0o755), file(home+"/d/a/deep/f", ""), os.Mkdir(home+"/d/b", 0o755))
	w := open(t, s, "d", Options{Recursive: true})
	do(t, os.Rename(home+"/d/a", home+"/d/b/a"))
	got := until(t, w, "create b/a/deep/f")
	if !slices.Equal(got, []string{"rename a", "create b/a", "create b/a/deep", "create b/a/deep/f"}) {
		t.Errorf("got %q", got)
	}
	do(t, file(home+"/d/b/a/deep/g", ""))
	until(t, w, "create b/a/deep/g")
	do(t, os.Rename(home+"/d/b/a", home+"/out"))
	until(t, w, "rename b/a")
	do(t, file(home+"/out/deep/h", ""), file(home+"/d/end", ""))
	if got := until(t, w, "create end"); len(got) != 1 {
		t.Errorf("outside is reported: %q", got)
	}
	if n := len(w.tree.nodes); n != 2 { // d, b
		t.Errorf("%d directories are watched", n)
	}
}

func TestARecursiveWatchDoesNotFollowLinks(t *testing.T) {
	s, home := newSet(t)
	do(t, os.MkdirAll(home+"/other", 0o755), os.Mkdir(home+"/d", 0o755), os.Symlink("..", home+"/d/loop"))
	w := open(t, s, "d", Options{Recursive: true})
	do(t, os.Symlink("../other", home+"/d/link"))
	until(t, w, "create link")
	do(t, file(home+"/other/f", ""), file(home+"/d/end", ""))
	if got := until(t, w, "create end"); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestWhatCannotBeWatchedIsRefused(t *testing.T) {
	s, home := newSet(t)
	do(t, file(home+"/f", ""), unix.Mkfifo(home+"/fifo", 0o644), os.Symlink("loop", home+"/loop"))
	for path, want := range map[string]error{
		"none": os.ErrNotExist, "f": ErrNotDirectory, "fifo": ErrNotDirectory, "f/x": ErrNotDirectory,
		"loop": unix.ELOOP, "a\x00b": unix.EINVAL,
	} {
		if _, err := s.Open(t.Context(), "user", path, Options{}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
	if _, err := s.Open(t.Context(), "nobody", "~", Options{}); !errors.Is(err, users.ErrUnknown) {
		t.Errorf("unknown user: %v", err)
	}
	if len(s.open) != 0 || s.watches != 0 {
		t.Errorf("%d watchers and %d watches are left", len(s.open), s.watches)
	}
}

func TestNetworkFileSystemsAreWatchedOnlyIfThatIsAskedFor(t *testing.T) {
	s, home := newSet(t)
	do(t, os.MkdirAll(home+"/d/mounted/below", 0o755))
	remote := map[uint64]bool{inode(t, home+"/d/mounted"): true}
	s.kind = func(fd int) (int64, error) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || !remote[st.Ino] {
			return kindOf(fd)
		}
		return 0x6969, nil
	}
	if _, err := s.Open(t.Context(), "user", "d/mounted", Options{}); !errors.Is(err, ErrNetwork) {
		t.Errorf("a network file system: %v", err)
	}
	open(t, s, "d/mounted", Options{Network: true})
	if w := open(t, s, "d", Options{Recursive: true}); len(w.tree.nodes) != 1 {
		t.Errorf("%d directories are watched, want d alone", len(w.tree.nodes))
	}
	if w := open(t, s, "d", Options{Recursive: true, Network: true}); len(w.tree.nodes) != 3 {
		t.Errorf("%d directories are watched, want 3", len(w.tree.nodes))
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	do(t, unix.Stat(path, &st))
	return st.Ino
}

func TestNamesOfAnyBytesAreReported(t *testing.T) {
	s, home := newSet(t)
	w := open(t, s, "~", Options{Recursive: true})
	name := "a\nb \xff\xfe"
	do(t, os.Mkdir(home+"/"+name, 0o755), file(home+"/"+name+"/"+strings.Repeat("n", 255), ""))
	until(t, w, "create "+name+"/"+strings.Repeat("n", 255))
}

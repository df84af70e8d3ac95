package watch

import (
	"context"
	"os"
	"slices"
	"testing"

	"cubesandbox/guest/users"
)

// stopped is direct that waits before each piece of work: until then a watcher reads
// nothing more.
type stopped struct {
	direct
	at chan string // who waits
	on chan bool
}

func (s stopped) Do(ctx context.Context, name string, f func(users.User) error) error {
	s.at <- name
	<-s.on
	return s.direct.Do(ctx, name, f)
}

// prepared has a recursive watcher of home/d read what change does only when all of it
// is done, and returns it with what it has told by "create end".
func prepared(t *testing.T, d string, change func()) (*Watcher, []string) {
	t.Helper()
	runner := stopped{direct{d}, make(chan string, 100), make(chan bool, 100)}
	s := NewSet(runner, describe)
	runner.on <- true
	w := open(t, s, "~", Options{Recursive: true})
	<-runner.at
	do(t, os.Mkdir(d+"/first", 0o755))
	<-runner.at // it has read that one
	change()
	do(t, file(d+"/end", ""))
	close(runner.on)
	return w, until(t, w, "create end")
}

// TestADirectoryThatIsMovedIntoANewOneIsWatchedThere: mkdir p && mv a p, before the
// first of the two is read.
func TestADirectoryThatIsMovedIntoANewOneIsWatchedThere(t *testing.T) {
	d := t.TempDir()
	do(t, os.MkdirAll(d+"/a/deep", 0o755), file(d+"/a/deep/f", ""))
	w, got := prepared(t, d, func() {
		do(t, os.Mkdir(d+"/p", 0o755), os.Rename(d+"/a", d+"/p/a"))
	})
	want := []string{"create first", "create p", "create p/a", "create p/a/deep", "create p/a/deep/f", "rename a", "create end"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	do(t, file(d+"/p/a/g", ""), file(d+"/p/a/deep/h", ""), os.Mkdir(d+"/p/a/sub", 0o755), file(d+"/p/a/sub/i", ""))
	until(t, w, "create p/a/g", "create p/a/deep/h", "create p/a/sub/i")
	do(t, os.Rename(d+"/p/a", d+"/b"), file(d+"/b/deep/k", ""))
	until(t, w, "rename p/a", "create b/deep/k")
	do(t, os.Rename(d+"/b", t.TempDir()+"/out"), file(d+"/last", ""))
	until(t, w, "rename b", "create last")
	if n := len(w.tree.nodes); n != 3 { // the root, first, p
		t.Errorf("%d directories are watched, want 3", n)
	}
	if w.set.watches != len(w.tree.nodes) {
		t.Errorf("%d watches are counted for %d directories", w.set.watches, len(w.tree.nodes))
	}
}

// TestADirectoryWhoseNameIsTakenAgainIsWatchedWithTheOtherOne: of two that have had one
// name both are watched.
func TestADirectoryWhoseNameIsTakenAgainIsWatchedWithTheOtherOne(t *testing.T) {
	d := t.TempDir()
	do(t, os.MkdirAll(d+"/a/old", 0o755))
	w, _ := prepared(t, d, func() {
		do(t, os.Mkdir(d+"/p", 0o755), os.Rename(d+"/a", d+"/p/a"), os.MkdirAll(d+"/a/new", 0o755))
	})
	do(t, file(d+"/p/a/old/f", ""), file(d+"/a/new/f", ""))
	until(t, w, "create p/a/old/f", "create a/new/f")
	// The two change places, by a third.
	do(t, os.Rename(d+"/a", d+"/c"), os.Rename(d+"/p/a", d+"/a"), os.Rename(d+"/c", d+"/p/a"))
	do(t, file(d+"/a/old/g", ""), file(d+"/p/a/new/g", ""))
	until(t, w, "create a/old/g", "create p/a/new/g")
}

// TestADirectoryAtTwoPlacesStaysAtTheFirst: as a mount has it.
func TestADirectoryAtTwoPlacesStaysAtTheFirst(t *testing.T) {
	s, home := newSet(t)
	do(t, os.Mkdir(home+"/a", 0o755))
	w := open(t, s, "~", Options{Recursive: true})
	dir, err := os.Open(home + "/a")
	do(t, err)
	defer dir.Close()
	for wd, n := range w.tree.nodes {
		if root := n.parent; root != nil {
			if w.moved(dir, n, &node{wd: wd, parent: root, name: "b"}) != nil || n.name != "a" {
				t.Errorf("it was moved to %s", n.rel())
			}
			if w.moved(dir, root, &node{parent: n, name: "loop"}) != nil || root.parent != nil {
				t.Error("the root was moved into itself")
			}
		}
	}
}

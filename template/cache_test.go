package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestKeyFollowsAllThatARootFileSystemIsMadeFrom(t *testing.T) {
	dir := define(t, "name = \"small\"\nsuites = [\"bookworm\"]\n")
	def, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	sources := []source{{uris: []string{"http://m.test"}, suites: []string{"bookworm"}}}
	key := func() string {
		t.Helper()
		k, err := cacheKey(def, "bookworm", sources)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	seen := map[string]string{key(): "at first"}
	differs := func(what string) {
		t.Helper()
		k := key()
		if before, ok := seen[k]; ok {
			t.Errorf("%s: the key is as it was %s", what, before)
		}
		seen[k] = what
	}
	write(t, filepath.Join(dir, "files/etc/x"), "1", 0o644)
	differs("with a file")
	write(t, filepath.Join(dir, "files/etc/x"), "2", 0o644)
	differs("with other content")
	if err := os.Chmod(filepath.Join(dir, "files/etc/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	differs("as a program")
	def.Packages = []string{"bash"}
	differs("with a package")
	def.Checks = []string{"true"}
	differs("with a check")
	sources[0].uris[0] = "http://n.test"
	differs("from another mirror")
	def.Limits.CPUs, def.Warm = 1, []string{"true"}
	if k := key(); seen[k] != "from another mirror" {
		t.Error("the key changes by itself, or with what plays no part")
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheKey(def, "bookworm", sources); err == nil {
		t.Error("a link in a definition is accepted")
	}
}

func TestPublishedEntryIsFoundAndAShortenedOneIsNot(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	e, err := c.begin(context.Background(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	if _, ok := c.find("k"); ok {
		t.Fatal("found before it is published")
	}
	write(t, filepath.Join(e.partial, imageName), "image", 0o644)
	r, err := e.publish(Rootfs{Digest: "d", Bytes: 5, Packages: 7})
	if err != nil {
		t.Fatal(err)
	}
	got, ok := c.find("k")
	r.Cached = true
	if !ok || got != r {
		t.Errorf("got %+v, %t, want %+v", got, ok, r)
	}
	write(t, r.Path, "im", 0o644)
	if _, ok := c.find("k"); ok {
		t.Error("a shortened image is taken for a finished one")
	}
}

func TestEntryThatIsNotPublishedLeavesNothing(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	e, err := c.begin(context.Background(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(e.partial, "root/x"), "", 0o644)
	e.close()
	left, err := filepath.Glob(filepath.Join(c.dir, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "k.lock" {
		t.Errorf("left %v, %v, want the lock alone", left, err)
	}
}

func TestNextBuilderRemovesWhatKilledOnesLeftButNotWhatIsAtWork(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	write(t, filepath.Join(c.dir, "dead.partial/root/x"), "", 0o644) // its builder's lock died with it
	alive, err := c.begin(context.Background(), "alive", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.close()
	e, err := c.begin(context.Background(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	if _, err := os.Stat(filepath.Join(c.dir, "dead.partial")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead builder's folder: %v, want that it is gone", err)
	}
	if _, err := os.Stat(alive.partial); err != nil {
		t.Errorf("the living builder's folder: %v", err)
	}
}

func TestSecondBuilderOfOneKeyWaitsForTheFirst(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	first, err := c.begin(context.Background(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
	defer cancel()
	if _, err := c.begin(impatient, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while the first works: got %v, want its own deadline", err)
	}
	second := make(chan error, 1)
	go func() {
		e, err := c.begin(context.Background(), "k", nil)
		if err == nil {
			e.close()
		}
		second <- err
	}()
	first.close()
	if err := <-second; err != nil {
		t.Errorf("after the first: %v", err)
	}
}

func TestTheEntriesThatWereUsedLastAreKept(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	publish := func(key string) {
		t.Helper()
		e, err := c.begin(context.Background(), key, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer e.close()
		write(t, filepath.Join(e.partial, imageName), "image", 0o644)
		if _, err := e.publish(Rootfs{Bytes: 5}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		publish(key)
		yesterday := time.Now().Add(-24 * time.Hour)
		if err := os.Chtimes(filepath.Join(c.dir, key, recordName), yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a", "b", "c"} { // d stays the oldest
		if _, ok := c.find(key); !ok {
			t.Fatalf("%s is gone too early", key)
		}
	}
	publish("e")
	for key, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "e": true} {
		if _, ok := c.find(key); ok != want {
			t.Errorf("%s is there: %t, want %t", key, ok, want)
		}
	}
}

package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

// fakePrograms is a folder whose cube-sentry only knows its version.
func fakePrograms(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func install(t *testing.T, en engines, version string) *os.File {
	t.Helper()
	got, inUse, err := en.install(t.Context(), fakePrograms(t, version))
	if err != nil || got != version {
		t.Fatalf("install %s: got %q, %v", version, got, err)
	}
	t.Cleanup(func() { inUse.Close() })
	return inUse
}

// old makes a version one that was installed long ago.
func old(t *testing.T, en engines, version string) {
	t.Helper()
	then := time.Now().Add(-2 * collectAge)
	if err := os.Chtimes(filepath.Join(en.dir, version), then, then); err != nil {
		t.Fatal(err)
	}
}

func unneeded() (bool, error) { return false, nil }

func TestAVersionStaysWhileSomethingUsesIt(t *testing.T) {
	en := engines{filepath.Join(t.TempDir(), "engines")}
	engine := install(t, en, "v1")
	keeper, err := en.begin("v1")
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	for _, user := range []*os.File{engine, keeper} {
		// The same version is built again: that changes nothing for who uses it.
		if err := os.WriteFile(en.sentry("v1")+".new", []byte("newer"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(en.sentry("v1")+".new", en.sentry("v1")); err != nil {
			t.Fatal(err)
		}
		if g, found, err := en.collect("v1", false, unneeded); found || err != nil {
			t.Fatalf("it is in use: got %+v, %v, %v", g, found, err)
		}
		user.Close()
	}
	if _, found, err := en.collect("v1", false, unneeded); found || err != nil {
		t.Errorf("it has just been installed: got %v, %v", found, err)
	}
	old(t, en, "v1")
	g, found, err := en.collect("v1", true, unneeded)
	if !found || err != nil || g.Name != "v1" || g.Kind != cube.GarbageEngine || g.Bytes == 0 || g.Why == "" {
		t.Errorf("a dry run: got %+v, %v, %v", g, found, err)
	}
	if !en.has("v1") {
		t.Fatal("a dry run has removed it")
	}
	if _, found, err := en.collect("v1", false, unneeded); !found || err != nil {
		t.Errorf("nothing uses it: got %v, %v", found, err)
	}
	if en.has("v1") {
		t.Error("it is still there")
	}
	if _, err := en.begin("v1"); err == nil {
		t.Error("a version that is gone can be used")
	}
}

func TestAVersionStaysWhileAnImageNeedsItOrMay(t *testing.T) {
	en := engines{filepath.Join(t.TempDir(), "engines")}
	install(t, en, "v1").Close()
	old(t, en, "v1")
	if _, found, err := en.collect("v1", false, func() (bool, error) { return true, nil }); found || err != nil {
		t.Errorf("an image needs it: got %v, %v", found, err)
	}
	bad := errors.New("a manifest cannot be read")
	if _, found, err := en.collect("v1", false, func() (bool, error) { return true, bad }); found || !errors.Is(err, bad) {
		t.Errorf("an image may need it: got %v, %v", found, err)
	}
	if !en.has("v1") {
		t.Error("it is gone")
	}
}

// TestAVersionStaysWhileItIsExecuted: the keeper and the server of another run
// directory may have been killed; its sentries hold no lock.
func TestAVersionStaysWhileItIsExecuted(t *testing.T) {
	en := engines{filepath.Join(t.TempDir(), "engines")}
	install(t, en, "v1").Close()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(en.sentry("v1"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	sentry := exec.Command(en.sentry("v1"))
	in, err := sentry.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sentry.Start(); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"as it is", "after a newer build has taken its place"} {
		old(t, en, "v1")
		if g, found, err := en.collect("v1", false, unneeded); found || err != nil || !en.has("v1") {
			t.Errorf("%s: got %+v, %v, %v", what, g, found, err)
		}
		if err := copyIfChanged(filepath.Join(fakePrograms(t, "v1"), programs[0]), en.sentry("v1")); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := sentry.Wait(); err != nil {
		t.Fatal(err)
	}
	old(t, en, "v1")
	if _, found, err := en.collect("v1", false, unneeded); !found || err != nil {
		t.Errorf("nothing executes it: got %v, %v", found, err)
	}
}

func TestWhatAKilledInstallationLeavesIsSwept(t *testing.T) {
	en := engines{filepath.Join(t.TempDir(), "engines")}
	install(t, en, "v0")
	for _, version := range []string{"v0", "v1"} {
		if err := os.MkdirAll(filepath.Join(en.dir, version), 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(en.dir, version, newPrefix+"123"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install(t, en, "v1")
	if left, err := filepath.Glob(filepath.Join(en.dir, "*", newPrefix+"*")); err != nil || len(left) != 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	if !en.has("v0") || !en.has("v1") {
		t.Error("a version is gone")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, diskPrefix+"1"), []byte("a layer"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := namelessFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestAHalfInstalledVersionIsGarbage(t *testing.T) {
	en := engines{filepath.Join(t.TempDir(), "engines")}
	install(t, en, "v1")
	if err := os.Mkdir(filepath.Join(en.dir, "v2"), 0o711); err != nil {
		t.Fatal(err)
	}
	if got := en.installed(); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("installed: got %q", got)
	}
	if names, err := en.names(); !slices.Equal(names, []string{"v1", "v2"}) {
		t.Errorf("names: got %q, %v", names, err)
	}
	old(t, en, "v2")
	if _, found, err := en.collect("v2", false, unneeded); !found || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestAVersionIsTheNameOfADirectory(t *testing.T) {
	en := engines{filepath.Join(t.TempDir(), "engines")}
	if err := os.MkdirAll(filepath.Join(en.dir, "x"), 0o711); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", ".", "..", "../x", "a/b", ".lock", "a\x00b", strings.Repeat("v", 300)} {
		if err := checkVersion(bad); !errors.Is(err, cube.ErrInvalid) {
			t.Errorf("%q: got %v", bad, err)
		}
		if en.has(bad) {
			t.Errorf("%q is installed", bad)
		}
	}
	if _, _, err := en.install(t.Context(), fakePrograms(t, "../x")); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("a program that calls itself ../x: got %v", err)
	}
}

func TestEverySocketHasRoomForItsName(t *testing.T) {
	longest := "/" + strings.Repeat("r", longestRunDir-1)
	p := otherPlace(longest, engines{}, "v1")
	control := filepath.Join(p.dir, "s", "runsc-"+strings.Repeat("0", 32)+".sock")
	if len(control) > 107 {
		t.Errorf("%d bytes in %s; a unix socket's name has 107", len(control), control)
	}
	if home := mainPlace(longest, engines{}, "v1"); home.cgroup == p.cgroup || !strings.HasPrefix(p.cgroup, home.cgroup+"/") {
		t.Errorf("cgroups %s and %s: want one below the other", home.cgroup, p.cgroup)
	}
	if other := otherPlace(longest, engines{}, "v2"); other.dir == p.dir {
		t.Errorf("two versions in %s", p.dir)
	}
}

func TestWhatAProcessorLacksIsNamed(t *testing.T) {
	have := []string{"avx", "avx2", "sse"}
	for _, c := range []struct{ name, want, lacks string }{
		{"all is there", "avx sse", ""},
		{"some is not", "avx amx sse xop", "amx xop"},
		{"much is not", "a b c d e f g", "a b c d e"},
		{"nothing is asked for", "", ""},
	} {
		if got := strings.Join(lacking(strings.Fields(c.want), have), " "); got != c.lacks {
			t.Errorf("%s: got %q, want %q", c.name, got, c.lacks)
		}
	}
	if got := lacking([]string{"amx"}, nil); got != nil {
		t.Errorf("a keeper that does not say what there is: got %q", got)
	}
}

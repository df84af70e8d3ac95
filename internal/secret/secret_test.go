package secret

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	cube "cubesandbox"
)

func TestAKeyIsMadeAtTheFirstStartAndKept(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "cube serve") {
		t.Errorf("before: %v, want that cube serve makes it", err)
	}
	key, made, err := Open(dir)
	if err != nil || !made || !form.MatchString(key) {
		t.Fatalf("got %q, made %v (%v)", key, made, err)
	}
	info, err := os.Stat(Path(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	again, made, err := Open(dir)
	if err != nil || made || again != key {
		t.Errorf("the second time: %q, made %v (%v); want the same", again, made, err)
	}
	if read, err := Read(dir); err != nil || read != key {
		t.Errorf("read %q (%v), want the same", read, err)
	}
	if other, _, err := Open(t.TempDir()); err != nil || other == key {
		t.Errorf("another installation has %q (%v)", other, err)
	}
	leftAlone(t, dir)
}

// leftAlone checks that the key is the only thing in its folder.
func leftAlone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v (%v)", entries, err)
	}
}

func TestAllWhoMakeAKeyAtTheSameTimeGetTheSame(t *testing.T) {
	dir := t.TempDir()
	keys := make([]string, 16)
	var wg sync.WaitGroup
	var makers atomic.Int32
	start := make(chan struct{})
	for i := range keys {
		wg.Go(func() {
			<-start
			key, made, err := Open(dir)
			if err != nil {
				t.Error(err)
			}
			if made {
				makers.Add(1)
			}
			keys[i] = key
		})
	}
	close(start)
	wg.Wait()
	for _, key := range keys {
		if key != keys[0] || key == "" {
			t.Errorf("keys %q", keys)
			break
		}
	}
	if n := makers.Load(); n != 1 {
		t.Errorf("%d have made it", n)
	}
	leftAlone(t, dir)
}

func TestAKeyThatOthersMayHaveReadOrThatIsNoneIsRefused(t *testing.T) {
	good := "e2b_" + strings.Repeat("0", 40)
	file := func(content string, mode os.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode))
		}
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"readable by others":     {file(good, 0o644), "chmod 600"},
		"readable by its group":  {file(good, 0o640), "chmod 600"},
		"writable by others":     {file(good, 0o602), "chmod 600"},
		"of another user":        {func(path string) error { return errors.Join(file(good, 0o600)(path), os.Chown(path, 65534, 0)) }, "chown"},
		"empty":                  {file("", 0o600), "empty"},
		"something else":         {file("hello", 0o600), "does not hold a key"},
		"too long":               {file(good+"0", 0o600), "does not hold a key"},
		"capitals":               {file("e2b_"+strings.Repeat("A", 40), 0o600), "does not hold a key"},
		"two keys":               {file(good+"\n"+good+"\n", 0o600), "does not hold a key"},
		"something far after it": {file(good+strings.Repeat(" ", 500)+"x", 0o600), "does not hold a key"},
		"a folder":               {func(path string) error { return os.Mkdir(path, 0o700) }, "is no file"},
		"a pipe":                 {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is no file"},
	} {
		dir := t.TempDir()
		if err := c.make(Path(dir)); err != nil {
			t.Fatal(err)
		}
		_, _, open := Open(dir)
		_, read := Read(dir)
		for _, err := range []error{open, read} {
			if !errors.Is(err, cube.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), Path(dir)) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), good) {
				t.Errorf("%s: the key is in the error", name)
			}
		}
	}
}

func TestAStateDirectoryThatIsNotThereIsNamed(t *testing.T) {
	dir := t.TempDir() + "/no"
	if _, _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

package secret

import (
	"errors"
	"io/fs"
	"os"
	"strings"
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
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v (%v)", entries, err)
	}
}

func TestAKeyThatOthersMayHaveReadOrThatIsNoneIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"readable by others": {"e2b_" + strings.Repeat("0", 40), 0o644, "chmod 600"},
		"empty":              {"", 0o600, "empty"},
		"something else":     {"hello", 0o600, "does not hold a key"},
		"too long":           {"e2b_" + strings.Repeat("0", 41), 0o600, "does not hold a key"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(Path(dir), []byte(c.content), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(dir); !errors.Is(err, cube.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestEqualIsEquality(t *testing.T) {
	if !Equal("a", "a") || Equal("a", "b") || Equal("a", "") {
		t.Error("wrong")
	}
}

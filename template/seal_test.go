package template

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSealGivesWhatTheBuildWroteTheTimeOfTheNewestPackagedFile(t *testing.T) {
	root := t.TempDir()
	packaged, newest := time.Unix(1_600_000_000, 0), time.Unix(1_650_000_000, 0)
	began := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{"usr/lib/a": packaged, "usr/lib/b": newest, "etc/written": time.Now()} {
		write(t, filepath.Join(root, name), name, 0o644)
		if err := os.Chtimes(filepath.Join(root, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere", filepath.Join(root, "etc/link")); err != nil {
		t.Fatal(err)
	}
	stamp, err := seal(root, nil, began)
	if err != nil || !stamp.Equal(newest) {
		t.Fatalf("got %v, %v, want %v", stamp, err, newest)
	}
	for name, want := range map[string]time.Time{"usr/lib/a": packaged, "usr/lib/b": newest, "etc/written": newest, "etc/link": newest, "etc": newest} {
		st, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !st.ModTime().Equal(want) {
			t.Errorf("%s: got %v, %v, want %v", name, st.ModTime(), err, want)
		}
	}
}

func TestSealLeavesNoSettingOfThisMachine(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, buildAptOptions), "Acquire::http::Proxy \"http://user:secret@proxy.test\";", 0o644)
	write(t, filepath.Join(root, "etc/apt/sources.list.d/0000machine.sources"), "Types: deb", 0o644)
	write(t, filepath.Join(root, "usr/lib/x"), "", 0o644)
	keyring := filepath.Join(t.TempDir(), "k.gpg")
	write(t, keyring, "public key", 0o600)
	sources := []source{
		{uris: []string{"http://user:secret@private.test/d"}, suites: []string{"s"}},
		{uris: []string{"http://m.test/d"}, suites: []string{"s"}, components: []string{"main"}, signedBy: keyring},
	}
	if _, err := seal(root, sources, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{buildAptOptions, "etc/apt/sources.list.d/0000machine.sources"} {
		if _, err := os.Stat(filepath.Join(root, gone)); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	got, err := os.ReadFile(filepath.Join(root, sandboxSources))
	want := "Types: deb\nURIs: http://m.test/d\nSuites: s\nComponents: main\nSigned-By: " + keyring + "\n"
	if err != nil || string(got) != want {
		t.Errorf("sources: got %q, %v, want %q", got, err, want)
	}
	if _, err := os.Stat(filepath.Join(root, keyring)); err != nil {
		t.Errorf("the key that they name: %v", err)
	}
}

func TestStaleBytecodeIsFound(t *testing.T) {
	root := t.TempDir()
	source := filepath.Join(root, "usr/lib/python3/m.py")
	write(t, source, "x = 1\n", 0o644)
	at := time.Unix(1_650_000_000, 0)
	if err := os.Chtimes(source, at, at); err != nil {
		t.Fatal(err)
	}
	compiled := func(flags uint32, mtime int64, size uint32) error {
		head := make([]byte, 16)
		binary.LittleEndian.PutUint32(head[4:], flags)
		binary.LittleEndian.PutUint32(head[8:], uint32(mtime))
		binary.LittleEndian.PutUint32(head[12:], size)
		write(t, filepath.Join(root, "usr/lib/python3/__pycache__/m.cpython-311.pyc"), string(head), 0o644)
		return staleBytecode(root)
	}
	if err := compiled(0, at.Unix(), 6); err != nil {
		t.Errorf("fitting: %v", err)
	}
	if err := compiled(3, 0, 0); err != nil {
		t.Errorf("checked by its hash: %v", err)
	}
	if err := compiled(0, at.Unix()+1, 6); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("other time: got %v", err)
	}
	if err := compiled(0, at.Unix(), 7); err == nil {
		t.Error("other size: not found")
	}
}

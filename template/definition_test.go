package template

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cube "cubesandbox"
)

// define writes a definition named "small" and returns its folder.
func define(t *testing.T, text string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, DefinitionFile), text, 0o644)
	return dir
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestLoadReadsBase(t *testing.T) {
	def, err := Load("../templates/base")
	if err != nil {
		t.Fatal(err)
	}
	if def.Name != "base" || def.User != (User{"user", 1000}) || def.Limits.MemoryMiB != 512 || len(def.Checks) == 0 {
		t.Errorf("got %+v", def)
	}
}

func TestLoadFillsInDefaults(t *testing.T) {
	def, err := Load(define(t, "name = \"small\"\nsuites = [\"bookworm\"]\n[limits]\ncpus = 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := cube.DefaultLimits()
	want.CPUs = 1
	if def.Limits != want || def.User != (User{"user", 1000}) {
		t.Errorf("got limits %+v and user %+v, want %+v and user 1000", def.Limits, def.User, want)
	}
}

func TestLoadSaysWhereADefinitionIsWrongAndWhatToDo(t *testing.T) {
	const head = "name = \"small\"\nsuites = [\"bookworm\"]\n"
	for _, test := range []struct{ name, text, want string }{
		{"syntax", head + "packages = [\n", "template.toml:3"},
		{"type", head + "packages = 3\n", "template.toml:3:"},
		{"unknown key", head + "package = []\n", "template.toml:3: unknown key \"package\""},
		{"unknown key in table", head + "[limits]\nmemory = 1\n", "template.toml:4: unknown key \"limits.memory\""},
		{"name", "name = \"Small\"\nsuites = [\"a\"]\n", "template.toml:1: name: \"Small\": want lower-case"},
		{"folder", "name = \"other\"\nsuites = [\"a\"]\n", "is not the name of its folder \"small\""},
		{"no suite", "name = \"small\"\n", "suites: is empty; name at least one"},
		{"suite", "name = \"small\"\nsuites = [\"-x\"]\n", "template.toml:2: suites: \"-x\""},
		{"package", head + "packages = [\"a b\"]\n", "template.toml:3: packages: \"a b\""},
		{"package option", head + "packages = [\"--x\"]\n", "packages: \"--x\""},
		{"hook outside", head + "hooks = [\"../x\"]\n", "leads out of the folder"},
		{"hook missing", head + "hooks = [\"x\"]\n", "\"x\" is not there"},
		{"hook mode", head + "hooks = [\"template.toml\"]\n", "chmod +x it"},
		{"root", head + "[user]\nname = \"root\"\n", "template.toml:4: user.name"},
		{"uid", head + "[user]\nuid = 0\n", "template.toml:4: user.uid: 0: want 1000 to 59999"},
		{"memory", head + "[limits]\nmemoryMiB = 64\n", "template.toml:4: limits.memoryMiB: 64: want 128 to 1048576"},
		{"cpus", head + "[limits]\ncpus = 0\n", "limits.cpus: 0: want 1 to 128"},
		{"disk", head + "[limits]\ndiskMiB = 1\n", "limits.diskMiB: 1: want 64 to"},
		{"pids", head + "[limits]\npids = 1\n", "limits.pids: 1: want 16 to"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(define(t, test.text))
			if !errors.Is(err, cube.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an ErrInvalid with %q", err, test.want)
			}
		})
	}
}

func TestLoadOfNoFolderSaysWhatATemplateIs(t *testing.T) {
	_, err := Load(t.TempDir())
	if !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), "a template is a folder with a template.toml") {
		t.Errorf("got %v", err)
	}
}

func TestFindLooksByNameAndTakesPathsAsTheyAre(t *testing.T) {
	dir := define(t, "")
	t.Setenv("CUBE_TEMPLATES", filepath.Dir(dir))
	if got, err := Find("small"); err != nil || got != dir {
		t.Errorf("by name: got %q, %v, want %q", got, err, dir)
	}
	if got, err := Find("./x"); err != nil || got != "./x" {
		t.Errorf("by path: got %q, %v", got, err)
	}
	if _, err := Find("large"); !errors.Is(err, cube.ErrNotFound) || !strings.Contains(err.Error(), "CUBE_TEMPLATES") {
		t.Errorf("unknown: got %v", err)
	}
}

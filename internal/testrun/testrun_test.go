package testrun

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with the given test functions and makes it current.
func module(t *testing.T, body string) (results string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n\ngo 1.26\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\n" + body,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	return filepath.Join(dir, "results")
}

func TestRunCountsShowsFailuresAndKeepsEvents(t *testing.T) {
	dir := module(t, `func TestA(t *testing.T) {}
func TestB(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("what was got") }) }
`)
	var out bytes.Buffer
	sum, err := Run(context.Background(), &out, dir, "unit", []string{"./..."})
	if err == nil || sum.Passed != 1 || sum.Failed != 2 {
		t.Errorf("got %+v, %v, want 1 passed, 2 failed", sum, err)
	}
	for _, want := range []string{"what was got", "--- failed: m TestB/sub", "FAIL\tm", "\n1 passed, 2 failed\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, "unit.json"))
	if err != nil || !bytes.Contains(kept, []byte(`"Test":"TestA"`)) {
		t.Errorf("events: %v, %s", err, kept)
	}
}

func TestRunTellsOfPassingPackages(t *testing.T) {
	dir := module(t, "func TestA(t *testing.T) {}\n")
	var out bytes.Buffer
	if sum, err := Run(context.Background(), &out, dir, "x", []string{"-count=1", "./..."}); err != nil || sum.Passed != 1 {
		t.Errorf("got %+v, %v", sum, err)
	}
	if !strings.HasPrefix(out.String(), "ok  \tm\t") || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed\n") {
		t.Errorf("got %q", out.String())
	}
}

func TestRunFailsOnWhatDoesNotBuildOnSkipsAndOnNonsense(t *testing.T) {
	for _, test := range []struct{ name, body, arg, want string }{
		{"build", "func TestA(t *testing.T) { undefined() }\n", "./...", "undefined: undefined"},
		{"skip", "func TestA(t *testing.T) { t.Skip() }\n", "./...", "skipped: m TestA"},
		{"arguments", "func TestA(t *testing.T) {}\n", "-nonsense", "0 passed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := module(t, test.body)
			var out bytes.Buffer
			if sum, err := Run(context.Background(), &out, dir, "x", []string{test.arg}); err == nil {
				t.Errorf("got %+v and no error", sum)
			}
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("no %q in:\n%s", test.want, out.String())
			}
		})
	}
}

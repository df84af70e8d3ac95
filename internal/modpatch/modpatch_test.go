package modpatch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const upstream = `package p

// A does it.
func A() int {
	x := 1
	return x
}

func B() int {
	x := 1
	return x
}
`

// edit is an edit file for upstream.
func edit(body string) []byte {
	return fmt.Appendf(nil, "# why\nfile p/a.go %x\n%s", sha256.Sum256([]byte(upstream)), body)
}

func apply(t *testing.T, body string) (string, error) {
	t.Helper()
	e, err := ParseEdit("a.edit", edit(body))
	if err != nil {
		return "", err
	}
	out, err := Apply([]byte(upstream), e)
	return string(out), err
}

func TestAnEditChangesThePlacesThatItNames(t *testing.T) {
	got, err := apply(t, `
in func B(
before x := 1
|// here
after x := 1
|if x > 0 {
|x++
|}
instead of return x
|	return x + 1

in func A(
instead of x := 1
instead of return x
|	return 0
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `package p

// A does it.
func A() int {
	return 0
}

func B() int {
	// here
	x := 1
	if x > 0 {
		x++
	}
	return x + 1
}
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestAnEditThatDoesNotFitSaysWhere(t *testing.T) {
	for body, want := range map[string]string{
		"in func C(\nafter x := 1\n|y": `a.edit: line 4: no declaration begins with "func C("`,
		"in func \nafter x := 1\n|y":   `a.edit: line 4: "func " begins two declarations`,
		"in func A(\nafter x := 2\n|y": `a.edit: line 4: "func A(" has no line "x := 2"`,
		"in // A does\nafter }\n|y":    `a.edit: p/a.go is no Go any more`,
		"in func A(\nafter x := 1":     "a.edit: line 4: nothing comes there",
		"in func A(\n|y":               "a.edit: line 4: text for no place",
		"after x := 1\n|y":             "a.edit: line 3: no declaration",
		"behind x := 1":                `a.edit: line 3: "behind x := 1" is no line of an edit file`,
		"":                             "a.edit: it changes nothing",
		"in func A(\ninstead of x := 1\ninstead of x := 1": `a.edit: line 5: "x := 1" is replaced twice`,
	} {
		if _, err := apply(t, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", body, err, want)
		}
	}
	if _, err := ParseEdit("a.edit", []byte("fil p/a.go")); err == nil || !strings.Contains(err.Error(), `want "file PATH SHA-256" first`) {
		t.Errorf("got %v", err)
	}
}

func TestAnEditStopsWhereTheModuleHasChanged(t *testing.T) {
	e, err := ParseEdit("a.edit", edit("in func A(\nafter x := 1\n|x++"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Apply([]byte(upstream+"\n"), e)
	var changed *ChangedError
	if !errors.As(err, &changed) || changed.Path != "p/a.go" || changed.Edit != "a.edit" ||
		!strings.Contains(err.Error(), fmt.Sprintf("%x", sha256.Sum256([]byte(upstream+"\n")))) {
		t.Errorf("got %v", err)
	}
}

// write writes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o444)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPatchesOfOneFileKnowNothingOfEachOther: each is written for the file as it is.
func TestPatchesOfOneFileKnowNothingOfEachOther(t *testing.T) {
	patches, src := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"p/a.go": upstream})
	write(t, patches, map[string]string{
		"edits/one/a.edit":   string(edit("in func A(\nafter x := 1\n|x++\n")),
		"edits/two/a.edit":   string(edit("in func A(\nafter x := 1\n|x += 2\ninstead of return x\n|return -x\n")),
		"edits/three/a.edit": string(edit("in func B(\nbefore return x\n|x--\n")),
	})
	s, err := Read(patches)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.changed(src)
	want := strings.Replace(upstream, "x := 1\n\treturn x", "x := 1\n\tx++\n\tx += 2\n\treturn -x", 1)
	want = strings.Replace(want, "\treturn x\n", "\tx--\n\treturn x\n", 1)
	if got := string(out["p/a.go"]); err != nil || got != want {
		t.Errorf("got %v\n%s", err, got)
	}
}

func TestACopyHasWhatIsChangedAndAdded(t *testing.T) {
	src, patches, dst := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "x", "copy")
	write(t, src, map[string]string{"go.mod": "module m\n", "p/a.go": upstream, "q/b.txt": "b"})
	write(t, patches, map[string]string{
		"README.md": "why", "edits/a.edit": string(edit("in func A(\nafter x := 1\n|x++")), "_added/p/c.go": "package p\n",
	})
	s, err := Read(patches)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Make(src, dst); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"go.mod": "module m\n", "q/b.txt": "b", "p/c.go": "package p\n",
		"p/a.go": strings.Replace(upstream, "x := 1\n", "x := 1\n\tx++\n", 1),
	} {
		if got, err := os.ReadFile(filepath.Join(dst, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got := s.Packages(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("Go is changed in %q", got)
	}
	before := *s
	for _, c := range []struct {
		name       string
		sum, built bool // another one then
	}{{"q.md", false, false}, {"_added/p/d_test.go", true, false}, {"_added/p/d.go", true, true}} {
		write(t, patches, map[string]string{c.name: "package p\n"})
		if s, err = Read(patches); err != nil || (s.Sum != before.Sum) != c.sum || (s.Built != before.Built) != c.built {
			t.Errorf("with %s: sums %s and %s, before %s and %s, %v", c.name, s.Sum, s.Built, before.Sum, before.Built, err)
		}
		before = *s
	}
}

func TestASetThatDoesNotFitMakesNothing(t *testing.T) {
	fits := string(edit("in func A(\nafter x := 1\n|x++"))
	replaces := string(edit("in func A(\ninstead of x := 1\n|x := 2"))
	for want, files := range map[string]map[string]string{
		"_added/q/b.txt: there is a file of that name":    {"_added/q/b.txt": "mine"},
		"edits/b/a: line 4: \"x := 1\" is replaced twice": {"edits/a/a": replaces, "edits/b/a": replaces},
		"edits/a.edit: p/a.go is not the file":            {"edits/a.edit": strings.Replace(fits, fits[len("# why\nfile p/a.go "):][:64], strings.Repeat("0", 64), 1)},
		"edits/a.edit: there is no p/gone.go any more":    {"edits/a.edit": strings.Replace(fits, "p/a.go", "p/gone.go", 1)},
	} {
		src, patches, dir := t.TempDir(), t.TempDir(), t.TempDir()
		write(t, src, map[string]string{"p/a.go": upstream, "q/b.txt": "b"})
		write(t, patches, files)
		s, err := Read(patches)
		if err == nil {
			err = s.Make(src, filepath.Join(dir, "copy"))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%q: it left %v", want, left)
		}
	}
}

package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheHouseHasItsPapers(t *testing.T) {
	for name, want := range map[string]string{
		"LICENSE":                        "Apache License\n                           Version 2.0",
		"README.md":                      "make up",
		"CHANGELOG.md":                   "## [Unreleased]",
		"docs/decisions/README.md":       "Context",
		"docs/decisions/dependencies.md": "go-toml",
		"docs/security.md":               "trust",
		"docs/operations.md":             "/var/lib/cube",
		"docs/benchmarks.md":             "cube bench",
		"docs/templates.md":              "template.toml",
		".ci/run":                        "make check",
		"gvisor/patches/README.md":       "another version of gVisor",
	} {
		text, err := os.ReadFile("../../" + name)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v; want it to have %q", name, err, want)
		}
	}
}

func TestTheMakefileHasItsWords(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"up", "build", "test", "check", "soak", "bench", "down", "clean", "conformance"} {
		if !regexp.MustCompile(`(?m)^` + word + `:`).Match(text) {
			t.Errorf("make %s is not there", word)
		}
	}
}

func TestTheReadmeSaysWhatIsNotSo(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Copies share memory", "Stock gVisor copies", "pages of written files"} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

func TestEachDirectDependencyHasAReason(t *testing.T) {
	reasons, err := os.ReadFile("../../docs/decisions/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range readTree(t).gos {
		if f.upstream() {
			continue // it depends on what gVisor depends on
		}
		for _, p := range f.imports() {
			first, _, _ := strings.Cut(p, "/")
			if !strings.Contains(first, ".") {
				continue // the standard library, and we
			}
			if !hasReason(string(reasons), p) {
				t.Errorf("%s imports %s: docs/decisions/dependencies.md does not say why", f.name, p)
			}
		}
	}
}

// hasReason reports whether a module that holds the package is in the table.
func hasReason(table, pkg string) bool {
	for path := pkg; strings.Contains(path, "/"); path = path[:strings.LastIndex(path, "/")] {
		if strings.Contains(table, "| `"+path+"` |") {
			return true
		}
	}
	return false
}

func TestEveryDecisionIsInTheIndex(t *testing.T) {
	index, err := os.ReadFile("../../docs/decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range readTree(t).files {
		file, ok := strings.CutPrefix(name, "docs/decisions/")
		if ok && file != "README.md" && !strings.Contains(string(index), "("+file+")") {
			t.Errorf("docs/decisions/README.md does not list %s", file)
		}
	}
}

func TestEveryPatchOfGVisorHasItsDocument(t *testing.T) {
	tr := readTree(t)
	index := string(tr.read(t, patchesDir+"/README.md"))
	patches := map[string]bool{}
	for _, name := range tr.files {
		if file, ok := strings.CutPrefix(name, patchesDir+"/edits/"); ok {
			patch, _, inFolder := strings.Cut(file, "/")
			patches[patch] = true
			if !inFolder || !strings.HasSuffix(name, ".edit") {
				t.Errorf("%s: want it at edits/PATCH/NAME.edit", name)
			}
		}
	}
	for patch := range patches {
		text, err := os.ReadFile("../../" + patchesDir + "/" + patch + ".md")
		for _, part := range []string{"## Purpose", "## Invariants", "## Carrying it", "## Tests"} {
			if err != nil || !strings.Contains(string(text), "\n"+part+"\n") {
				t.Errorf("%s/%s.md: %v; want it to have %q", patchesDir, patch, err, part)
			}
		}
		if !strings.Contains(index, "]("+patch+".md)") {
			t.Errorf("%s/README.md does not list %s.md", patchesDir, patch)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

func TestLinksBetweenDocumentsLead(t *testing.T) {
	tr := readTree(t)
	for _, name := range tr.files {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		for _, m := range link.FindAllSubmatch(tr.read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(tr.root, filepath.Dir(name), string(m[1]))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

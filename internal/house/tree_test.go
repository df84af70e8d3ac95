package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "cubesandbox"

// tree is the checkout: every file that is tracked or could be.
type tree struct {
	root  string
	files []string // slash-separated, from the root
	fset  *token.FileSet
	gos   []*goFile
}

// goFile is a parsed Go file of the module.
type goFile struct {
	name      string
	dir       string // "." is the root
	src       []byte
	ast       *ast.File
	generated bool
}

// upstream reports whether a file is to be part of gVisor: of a package of it, that names
// and imports what is there.
func (f *goFile) upstream() bool { return strings.HasPrefix(f.dir, patchesDir+"/_added/") }

// patchesDir is where what we change in gVisor is.
const patchesDir = "gvisor/patches"

func (f *goFile) test() bool { return strings.HasSuffix(f.name, "_test.go") }

var generatedMark = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// readTree returns the tree, which is read once for all tests.
func readTree(t *testing.T) *tree {
	t.Helper()
	tr, err := theTree()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var theTree = sync.OnceValues(func() (*tree, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	if err := touchFolders(root); err != nil {
		return nil, err
	}
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	tr := &tree{root: root, fset: token.NewFileSet()}
	for _, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		st, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !st.Mode().IsRegular() {
			continue // removed and not yet committed, or a link
		}
		tr.files = append(tr.files, name)
		if strings.HasSuffix(name, ".go") {
			f, err := tr.parse(name)
			if err != nil {
				return nil, err
			}
			tr.gos = append(tr.gos, f)
		}
	}
	if len(tr.gos) == 0 {
		return nil, errors.New("no Go file found: is this a checkout?")
	}
	return tr, nil
})

// touchFolders reads every folder, so that go test knows that the result depends on
// which files there are, and does not take an old one.
func touchFolders(root string) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch entry.Name() {
		case ".git", ".cache", "bin":
			return fs.SkipDir
		}
		return nil
	})
}

func (tr *tree) parse(name string) (*goFile, error) {
	src, err := os.ReadFile(filepath.Join(tr.root, name))
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(tr.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &goFile{name: name, dir: path.Dir(name), src: src, ast: parsed, generated: generatedMark.Match(src)}, nil
}

func (tr *tree) read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tr.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// imports returns the paths that a file imports.
func (f *goFile) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			p = spec.Path.Value
		}
		paths = append(paths, p)
	}
	return paths
}

func (tr *tree) line(pos token.Pos) int { return tr.fset.Position(pos).Line }

func lineCount(src []byte) int { return bytes.Count(src, []byte("\n")) }

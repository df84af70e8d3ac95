package house

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range readTree(t).gos {
		if f.test() || f.generated || f.upstream() {
			continue
		}
		doc := f.ast.Doc.Text()
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = "Command " + path.Base(f.dir) + " "
		}
		documented[f.dir] = documented[f.dir] || strings.HasPrefix(doc, want)
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no file has a comment \"Package (or Command) NAME …\"", dir)
		}
	}
}

func TestEveryExportedNameHasAComment(t *testing.T) {
	tr := readTree(t)
	for _, f := range tr.gos {
		if f.test() || f.generated || f.ast.Name.Name == "main" {
			continue
		}
		for _, decl := range f.ast.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s:%d: %s has no comment", f.name, tr.line(name.Pos()), name.Name)
			}
		}
	}
}

// undocumented returns the exported names of a declaration that have no comment,
// neither of their own nor of their group.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && receiverExported(d) && !obvious(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var names []*ast.Ident
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec:
				if s.Doc == nil && s.Comment == nil && d.Doc == nil {
					names = append(names, slices.DeleteFunc(slices.Clone(s.Names), func(n *ast.Ident) bool { return !n.IsExported() })...)
				}
			}
		}
		return names
	}
	return nil
}

// obvious are methods whose meaning the language or its library gives.
func obvious(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap", "Read", "Write", "Close", "Len", "Less", "Swap", "ServeHTTP"}, d.Name.Name)
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}

func TestNoFileIsLongerThan400Lines(t *testing.T) {
	for _, f := range readTree(t).gos {
		if n := lineCount(f.src); n > 400 && !f.generated {
			t.Errorf("%s has %d lines: it has more than one subject; cut it", f.name, n)
		}
	}
}

func TestGoFilesAreFormatted(t *testing.T) {
	for _, f := range readTree(t).gos {
		formatted, err := format.Source(f.src)
		if err != nil || !bytes.Equal(formatted, f.src) {
			t.Errorf("%s is not gofmt-clean: %v", f.name, err)
		}
	}
}

func TestNobodySleepsToWait(t *testing.T) {
	tr := readTree(t)
	for _, f := range tr.gos {
		reasons := map[int]bool{} // lines that a reason covers
		for _, group := range f.ast.Comments {
			if strings.Contains(group.Text(), "waits for nothing:") {
				end := tr.line(group.End())
				reasons[end], reasons[end+1] = true, true
			}
		}
		for _, at := range calls(f.ast, "time", "Sleep") {
			line := tr.line(at)
			if f.test() {
				t.Errorf("%s:%d sleeps: wait for the thing itself", f.name, line)
			} else if !reasons[line] {
				t.Errorf("%s:%d sleeps: wait for the thing itself, or say above it \"waits for nothing: REASON\"", f.name, line)
			}
		}
	}
}

func TestNoTestIsSkipped(t *testing.T) {
	tr := readTree(t)
	for _, f := range tr.gos {
		if !f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				t.Errorf("%s:%d: a test runs or does not exist", f.name, tr.line(sel.Pos()))
			}
			return true
		})
	}
}

// calls returns where a function of a package is called by its usual name.
func calls(file *ast.File, pkg, name string) []token.Pos {
	var at []token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != name {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
			at = append(at, call.Pos())
		}
		return true
	})
	return at
}

func TestMainPackagesOnlyWire(t *testing.T) {
	tr := readTree(t)
	for _, f := range tr.gos {
		if f.ast.Name.Name != "main" || f.test() || part(f.dir) != "cmd" {
			continue
		}
		if n := lineCount(f.src); n > 200 {
			t.Errorf("%s has %d lines: move what it does into a package", f.name, n)
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s:%d starts a goroutine: a package should own it", f.name, tr.line(n.Pos()))
			case *ast.FuncDecl:
				if n.Recv != nil {
					t.Errorf("%s:%d: a method: types with behaviour belong into a package", f.name, tr.line(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestPackageNamesSayWhatIsInThem(t *testing.T) {
	for _, f := range readTree(t).gos {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "base", "misc", "shared", "manager"}, f.ast.Name.Name) {
			t.Errorf("%s: package %s says nothing", f.name, f.ast.Name.Name)
		}
	}
}

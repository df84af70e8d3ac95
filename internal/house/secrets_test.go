package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestSecretsAreComparedInConstantTime: == takes a time that tells how much of a guess
// is right. What a variable with the name of a secret may be compared with is the empty
// string and nil.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	example, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
func f(token, key string, r struct{ AccessToken string }) bool {
	return token == key || r.AccessToken != key || token == "" || nil != r.AccessToken || key == "a"
}`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if found := comparisons(example); len(found) != 2 {
		t.Fatalf("the rule finds %d places, want the first two", len(found))
	}
	tr := readTree(t)
	for _, f := range tr.gos {
		if f.test() || f.generated || f.upstream() || strings.HasSuffix(f.dir, "test") {
			continue // a suite for tests guards nothing
		}
		for _, at := range comparisons(f.ast) {
			t.Errorf("%s:%d compares a secret with == or !=: use crypto/subtle", f.name, tr.line(at))
		}
	}
}

// comparisons are the places where a secret is compared as anything else is.
func comparisons(file *ast.File) []token.Pos {
	var found []token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.BinaryExpr); ok && (c.Op == token.EQL || c.Op == token.NEQ) && (secret(c.X) || secret(c.Y)) && !empty(c.X) && !empty(c.Y) {
			found = append(found, c.Pos())
		}
		return true
	})
	return found
}

// secret reports whether an expression is named as a secret is.
func secret(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	name = strings.ToLower(name)
	for _, word := range []string{"token", "secret", "signature", "password", "apikey"} {
		if strings.HasSuffix(name, word) {
			return true
		}
	}
	return false
}

// empty reports whether an expression is "" or nil.
func empty(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value == `""`
	case *ast.Ident:
		return e.Name == "nil"
	}
	return false
}

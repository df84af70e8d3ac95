package conformance

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Runs are the runs of the product that count as evidence: make check leaves the
// results of each under the name.
var Runs = []string{"demo", "probe", "probe-api", "bench", "bench-api"}

// Check fails when a row names a test that is not in the tree at root, or a run
// that there is not. It names every one.
func Check(root, file string, rows []Row) error {
	tests := map[string]map[string]bool{}
	var errs []error
	for _, row := range rows {
		for _, e := range row.Evidence {
			where, name, ok := strings.Cut(e, ":")
			if !ok {
				errs = append(errs, fmt.Errorf("%s:%d: %q: want FOLDER:TestName, run:NAME figure:NAME<=N or figure:NAME<=N*OTHER", file, row.line, e))
				continue
			}
			if where == "run" {
				if !slices.Contains(Runs, name) {
					errs = append(errs, fmt.Errorf("%s:%d: there is no run %q", file, row.line, name))
				}
				continue
			}
			if where == "figure" {
				if _, err := bound(name); err != nil {
					errs = append(errs, fmt.Errorf("%s:%d: %w", file, row.line, err))
				}
				continue
			}
			if tests[where] == nil {
				found, err := testsIn(filepath.Join(root, where))
				if err != nil {
					return err
				}
				tests[where] = found
			}
			function, _, _ := strings.Cut(name, "/")
			if !tests[where][function] {
				errs = append(errs, fmt.Errorf("%s:%d: %s has no test %s; name the one that shows this now", file, row.line, where, function))
			}
		}
	}
	return errors.Join(errs...)
}

// testsIn returns the test functions of a folder, and those of fuzz tests, whose seeds run as tests.
func testsIn(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				found[f.Name.Name] = true
			}
		}
	}
	return found, nil
}

package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// document is openapi.yaml, read.
type document struct{ *openapi3.T }

func readDocument(t *testing.T) *document {
	t.Helper()
	doc, err := theDocument()
	if err != nil {
		t.Fatal(err)
	}
	return &document{doc}
}

var theDocument = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(spec) })

// check holds an answer against openapi.yaml. Routes that are not in it must answer
// with an error.
func (w *world) check(r *http.Request, got reply) error {
	_, pattern := w.api.mux.Handler(r)
	_, path, _ := strings.Cut(pattern, " ")
	var op *openapi3.Operation
	if item := w.spec.Paths.Value(path); item != nil {
		op = item.GetOperation(r.Method)
	}
	if op == nil {
		return w.checkUnlisted(r, got)
	}
	resp := op.Responses.Status(got.status)
	if resp == nil && got.status >= 400 {
		resp = op.Responses.Default()
	}
	if resp == nil {
		return fmt.Errorf("status %d is not in openapi.yaml", got.status)
	}
	return checkBody(resp.Value, got)
}

func (w *world) checkUnlisted(r *http.Request, got reply) error {
	switch {
	case r.Method == http.MethodOptions && got.status == http.StatusNoContent:
		return nil
	case got.status < 400:
		return errors.New("the route is not in openapi.yaml")
	default:
		return checkBody(w.spec.Components.Responses["Error"].Value, got)
	}
}

func checkBody(want *openapi3.Response, got reply) error {
	if len(want.Content) == 0 {
		if got.text != "" {
			return errors.New("openapi.yaml has no body")
		}
		return nil
	}
	media := want.Content.Get(got.header.Get("Content-Type"))
	if media == nil {
		return fmt.Errorf("Content-Type %q is not in openapi.yaml", got.header.Get("Content-Type"))
	}
	if !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(got.text), &v); err != nil {
		return err
	}
	if err := media.Schema.Value.VisitJSON(v, openapi3.VisitAsResponse(), openapi3.MultiErrors()); err != nil {
		return err
	}
	return undescribed(media.Schema.Value, v)
}

// undescribed finds fields that the schema does not have.
func undescribed(s *openapi3.Schema, v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := undescribed(s.Items.Value, e); err != nil {
				return err
			}
		}
	case map[string]any:
		fields := properties(s)
		if len(fields) == 0 {
			return nil // any object
		}
		for name, e := range v {
			f, ok := fields[name]
			if !ok {
				return fmt.Errorf("field %s is not in openapi.yaml", name)
			}
			if err := undescribed(f.Value, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func properties(s *openapi3.Schema) openapi3.Schemas {
	all := openapi3.Schemas{}
	for name, p := range s.Properties {
		all[name] = p
	}
	for _, part := range s.AllOf {
		for name, p := range properties(part.Value) {
			all[name] = p
		}
	}
	return all
}

func TestTheDescriptionIsValidOpenAPI(t *testing.T) {
	if err := readDocument(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEveryRouteIsDescribedAndNothingElseIs(t *testing.T) {
	described := map[string]bool{}
	for path, item := range readDocument(t).Paths.Map() {
		for method := range item.Operations() {
			described[method+" "+path] = true
		}
	}
	known := map[string]bool{}
	for _, l := range later {
		known[l] = true
	}
	w := newWorld(t)
	for _, r := range w.api.routes {
		name := r.method + " " + r.pattern
		if !known[name] && !described[name] {
			t.Errorf("%s is not in openapi.yaml", name)
		}
		if known[name] && described[name] {
			t.Errorf("%s is in openapi.yaml and does not work yet", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("%s is in openapi.yaml and not in the API", name)
	}
}

func TestOnlyHealthIsDescribedAsNeedingNoKey(t *testing.T) {
	for path, item := range readDocument(t).Paths.Map() {
		for method, op := range item.Operations() {
			open := op.Security != nil && len(*op.Security) == 0
			if open != (path == "/health") {
				t.Errorf("%s %s: needs no key: %v", method, path, open)
			}
		}
	}
}

func TestWritingTheTypesAgainChangesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"http/generate.sh", "http/openapi.yaml", "tools/go.mod", "tools/go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "http/generate.sh"))
	cmd.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate.sh: %v: %s", err, out)
	}
	is, err := os.ReadFile("openapi/types.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(filepath.Join(dir, "http/openapi/types.gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is, made) {
		t.Error("openapi/types.gen.go is not what generate.sh makes of openapi.yaml: run it")
	}
}

func TestTheServerGivesItsDescription(t *testing.T) {
	w := newWorld(t)
	got := w.want(200, asCube, "GET", "/openapi.yaml", "")
	if got.text != string(spec) {
		t.Error("GET /openapi.yaml is not openapi.yaml")
	}
}

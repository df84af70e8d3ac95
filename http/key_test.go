package http

import (
	"fmt"
	"strings"
	"testing"

	cube "cubesandbox"
)

// keyed are the calls that take an idempotency key, and what the service is asked for.
var keyed = []struct {
	path, body string
	keyOf      func(asked any) string
}{
	{"/sandboxes", `{"templateID":"base"}`, func(q any) string { return q.(cube.NewSandbox).Key }},
	{"/v2/sandboxes", `{"templateID":"base"}`, func(q any) string { return q.(cube.NewSandbox).Key }},
	{aBox + "/clone", ``, func(q any) string { return q.(cube.Cloning).Key }},
	{aBox + "/snapshots", `{"name":"ready"}`, func(q any) string { return q.(cube.Snapshotting).Key }},
}

func TestIdempotencyKeysReachTheServiceOnCreateCloneAndSnapshot(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		for _, c := range keyed {
			for _, key := range []string{"", "k", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, strings.Repeat("~", 255)} {
				s := willing()
				h := as
				if key != "" {
					h = as.with("Idempotency-Key", key)
				}
				stubbed(t, s).want(201, h, "POST", c.path, c.body)
				if got := c.keyOf(s.asked); got != key {
					t.Errorf("%s: the key %q became %q", c.path, key, got)
				}
			}
		}
	}
}

func TestAKeyThatIsNoneIsRefusedBeforeAnythingIsDone(t *testing.T) {
	for _, c := range keyed {
		for _, key := range []string{"", " ", "a b", "a\tb", "ä", "\x7f", strings.Repeat("x", 256)} {
			s := willing()
			w := stubbed(t, s)
			got := w.want(400, asCube.with("Idempotency-Key", key), "POST", c.path, c.body)
			got.says("Idempotency-Key", "255")
			if s.asked != nil {
				t.Errorf("%q: the service was asked for %v", key, s.asked)
			}
		}
		r := request(asCube, "POST", c.path, c.body)
		r.Header["Idempotency-Key"] = []string{"a", "b"}
		if rec := record(stubbed(t, willing()).api, r); rec.Code != 400 {
			t.Errorf("%s: two keys: %d %s", c.path, rec.Code, rec.Body)
		}
	}
}

func TestOnlyCreateCloneAndSnapshotAreDescribedAsTakingAKey(t *testing.T) {
	takes := map[string]bool{}
	for path, item := range readDocument(t).Paths.Map() {
		for method, op := range item.Operations() {
			if op.Parameters.GetByInAndName("header", "Idempotency-Key") != nil {
				takes[method+" "+path] = true
			}
		}
	}
	for _, c := range keyed {
		name := "POST " + strings.Replace(c.path, aBox, "/sandboxes/{sandboxID}", 1)
		if !takes[name] {
			t.Errorf("openapi.yaml does not say that %s takes a key", name)
		}
		delete(takes, name)
	}
	for name := range takes {
		t.Errorf("openapi.yaml says that %s takes a key", name)
	}
}

// TestAKeyWhoseSandboxIsGoneDoesNotBlameTheTemplate: killed, or forgotten.
func TestAKeyWhoseSandboxIsGoneDoesNotBlameTheTemplate(t *testing.T) {
	id := strings.Repeat("a", 32)
	for _, err := range []error{
		&cube.EndedError{ID: cube.SandboxID(id), End: cube.Death{Reason: cube.DeathKilled}}, fmt.Errorf("sandbox %s: %w", id, cube.ErrNotFound),
	} {
		for _, as := range []headers{asE2B, asCube} {
			got := stubbed(t, failing(err)).want(404, as.with("Idempotency-Key", "k"), "POST", "/sandboxes", `{"templateID":"base"}`)
			if got.says("sandbox " + id + " not found"); strings.Contains(got.text, "template") {
				t.Errorf("%s", got.text)
			}
		}
	}
	stubbed(t, failing(cube.ErrNotFound)).want(404, asCube, "POST", "/sandboxes", `{"templateID":"base"}`).says("template base")
}

func TestTheSameKeyGivesTheSameAnswerAndIsRefusedForSomethingElse(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		w := newWorld(t)
		h := as.with("Idempotency-Key", "once")
		first := w.want(201, h, "POST", "/sandboxes", `{"templateID":"base","timeout":300}`)
		again := w.want(201, h, "POST", "/sandboxes", `{"templateID":"base","timeout":300}`)
		if first.text != again.text {
			t.Errorf("the second answer is %s, want the first, %s", again.text, first.text)
		}
		got := w.want(422, h, "POST", "/sandboxes", `{"templateID":"base","timeout":301}`)
		if code := got.object()["error_code"]; code != "idempotency_key_reused" {
			t.Errorf("error_code %v", code)
		}
		path := box(first)
		snap := w.want(201, as.with("Idempotency-Key", "snap"), "POST", path+"/snapshots", "").object()["snapshotID"]
		if got := w.want(201, as.with("Idempotency-Key", "snap"), "POST", path+"/snapshots", "").object()["snapshotID"]; got != snap {
			t.Errorf("snapshot: %v, want %v", got, snap)
		}
		clones := w.want(201, as.with("Idempotency-Key", "clones"), "POST", path+"/clone", `{"count":2}`)
		if got := w.want(201, as.with("Idempotency-Key", "clones"), "POST", path+"/clone", `{"count":2}`); got.text != clones.text {
			t.Errorf("clones: %s, want %s", got.text, clones.text)
		}
		w.nothingBut(3)
	}
}

package http

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
)

// verbs are a right request of each route that reaches the service.
var verbs = []struct{ method, path, body string }{
	{"POST", "/sandboxes", `{"templateID":"base"}`},
	{"POST", "/v2/sandboxes", `{"templateID":"base"}`},
	{"GET", "/sandboxes", ""},
	{"GET", "/v2/sandboxes", ""},
	{"GET", aBox, ""},
	{"DELETE", aBox, ""},
	{"POST", aBox + "/connect", `{"timeout":1}`},
	{"POST", "/v2" + aBox + "/connect", ""},
	{"POST", aBox + "/pause", ""},
	{"POST", aBox + "/resume", ""},
	{"POST", aBox + "/timeout", `{"timeout":1}`},
	{"POST", aBox + "/refreshes", ""},
	{"POST", aBox + "/snapshots", ""},
	{"POST", aBox + "/rollback", `{"snapshotID":"x"}`},
	{"POST", aBox + "/clone", ""},
	{"GET", "/snapshots", ""},
	{"GET", "/templates", ""},
	{"GET", "/v2/templates", ""},
	{"GET", "/templates/base", ""},
	{"DELETE", "/templates/base", ""},
	{"GET", "/templates/aliases/base", ""},
	{"POST", aBox + "/recover", ""},
	{"GET", "/sandboxes/ended", ""},
	{"POST", "/images/base/verify", ""},
	{"POST", "/gc", `{"dryRun":true}`},
	{"GET", "/plans", ""},
}

func TestEveryErrorHasItsStatusInTheBodyTooOnEveryRoute(t *testing.T) {
	memory := &cube.CapacityError{What: "memory", Needed: 512 << 20, Free: 100 << 20}
	for _, tt := range []struct {
		err       error
		status    int // E2B's
		cubes     int // CubeSandbox's, if it is another
		errorCode string
		retry     string
		words     []string
		ours      bool // CubeSandbox's clients get the error code too
	}{
		{err: cube.ErrInvalid, status: 400},
		{err: cube.ErrNotFound, status: 404},
		{err: &cube.EndedError{ID: "0123", End: cube.Death{Reason: cube.DeathTimeout}}, status: 404, words: []string{"0123", "timeout"}},
		{err: cube.ErrExists, status: 409},
		{err: cube.ErrConflict, status: 409},
		{err: cube.ErrDead, status: 404},
		{err: cube.ErrNoCapacity, status: 429, errorCode: "sandbox_capacity_unavailable", retry: "1"},
		{err: memory, status: 429, errorCode: "sandbox_capacity_unavailable", retry: "1", words: []string{"512 MiB needed", "100 MiB free"}},
		{err: cube.ErrNoSpace, status: 507, errorCode: "sandbox_capacity_unavailable", words: []string{"no space left", "`cube snapshot rm`, `cube template rm`; `cube gc` frees"}},
		{err: cube.ErrUnavailable, status: 503, retry: "1"},
		{err: cube.ErrUnsupported, status: 501},
		{err: cube.ErrKeyReused, status: 422, errorCode: "idempotency_key_reused", ours: true, words: []string{"another request"}},
		{err: cube.ErrCorrupt, status: 500, errorCode: "image_corrupt", ours: true},
		{err: &cube.CorruptError{Image: "snap-1", File: "pages", Detail: "short"}, status: 500, errorCode: "image_corrupt", ours: true, words: []string{"snap-1", "pages", "use another"}},
		{err: cube.ErrIncompatible, status: 409, errorCode: "image_incompatible", ours: true},
		{err: cube.ErrAgent, status: 500, errorCode: "internal_server_error"},
		{err: cube.ErrRefused, status: 500, errorCode: "internal_server_error"},
		{err: errors.New("anything"), status: 500, errorCode: "internal_server_error", words: []string{"anything"}},
		{err: context.DeadlineExceeded, status: 504, cubes: 408, errorCode: "sandbox_placement_timeout"},
	} {
		w := stubbed(t, failing(fmt.Errorf("do this: %w", tt.err)))
		for _, v := range verbs {
			for _, as := range []headers{asE2B, asCube} {
				e2b := as[1] == asE2B[1] || strings.HasPrefix(v.path, "/v2/") && v.path != "/v2/sandboxes" || v.path == "/v2/sandboxes" && v.method == "POST"
				status, code := tt.status, tt.errorCode
				if !e2b {
					if !tt.ours {
						code = ""
					}
					if tt.cubes != 0 {
						status = tt.cubes
					}
				}
				got := w.want(status, as, v.method, v.path, v.body)
				body := got.object()
				if body["code"] != float64(status) {
					t.Errorf("%v: %s: code %v, want the status %d", tt.err, got.what, body["code"], status)
				}
				if c, _ := body["error_code"].(string); c != code {
					t.Errorf("%v: %s: error_code %q, want %q", tt.err, got.what, c, code)
				}
				if r := got.header.Get("Retry-After"); r != tt.retry {
					t.Errorf("%v: %s: Retry-After %q, want %q", tt.err, got.what, r, tt.retry)
				}
				got.says(append(tt.words, "do this")...)
			}
		}
	}
}

func TestEveryRouteThatReachesTheServiceIsAmongTheVerbs(t *testing.T) {
	w := stubbed(t, willing())
	reached := map[string]bool{}
	for _, v := range verbs {
		_, pattern := w.api.mux.Handler(request(asE2B, v.method, v.path, v.body))
		reached[pattern] = true
	}
	for _, r := range w.api.routes {
		switch r.op {
		case "later", "health", "metrics", "openapi":
		default:
			if !reached[r.method+" "+r.pattern] {
				t.Errorf("%s %s is not", r.method, r.pattern)
			}
		}
	}
}

func TestTheWordTemplateIsWhereATemplateIsNotFoundAndNowhereElse(t *testing.T) {
	w := newWorld(t)
	for _, as := range []headers{asE2B, asCube} {
		for _, name := range []string{"nope", "tpl-000000000000000000000000", "snap-000000000000000000000000", "team/nope:default"} {
			w.want(404, as, "POST", "/sandboxes", `{"templateID":"`+name+`"}`).says("template", "not found")
			name = strings.ReplaceAll(name, "/", "%2F")
			w.want(404, as, "GET", "/templates/"+name, "").says("template", "not found")
			w.want(404, as, "GET", "/templates/aliases/"+name, "").says("template", "not found")
			w.want(404, as, "DELETE", "/templates/"+name, "").says("template", "not found")
		}
		gone := w.create(as)
		w.want(204, as, "DELETE", gone, "")
		for _, path := range []string{gone, "/sandboxes/" + strings.Repeat("0", 32), "/sandboxes/template", "/sandboxes/Template%2F..", "/sandboxes/short-node"} {
			for _, v := range verbs {
				if !strings.HasPrefix(strings.TrimPrefix(v.path, "/v2"), aBox) {
					continue
				}
				got := w.want(404, as, v.method, strings.Replace(v.path, aBox, path, 1), v.body)
				if m := fmt.Sprint(got.object()["message"]); strings.Contains(m, "template") || !strings.Contains(m, "sandbox") && !strings.Contains(m, "snapshot") {
					t.Errorf("%s: %q, want a sandbox and no template in it", got.what, m)
				}
			}
		}
	}
}

func TestAnImageThatIsMissingBelowIsStillATemplateThatIsNotFound(t *testing.T) {
	w := stubbed(t, failing(fmt.Errorf("image snap-1: %w", cube.ErrNotFound)))
	w.want(404, asCube, "POST", "/sandboxes", `{"templateID":"base"}`).says("template base", "image snap-1", "not found")
}

func TestATimeLimitThatIsOverIsSaidWhateverTheServiceMakesOfIt(t *testing.T) {
	s := failing(nil)
	s.act = func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("the agent did not answer")
	}
	w := stubbed(t, s)
	for i := range w.api.routes {
		if w.api.routes[i].limit == 0 {
			t.Errorf("%s has no time limit", w.api.routes[i].pattern)
		}
	}
	for _, as := range []headers{asE2B, asCube} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		rec := record(w.api, request(as, "POST", "/sandboxes", `{"templateID":"base"}`).WithContext(ctx))
		cancel()
		want := 504
		if as[1] == asCube[1] {
			want = 408
		}
		if rec.Code != want || !strings.Contains(rec.Body.String(), "agent did not answer") {
			t.Errorf("%d %s, want %d", rec.Code, rec.Body, want)
		}
	}
}

func TestAClientThatWentAwayIsNoFaultOfOurs(t *testing.T) {
	s := failing(nil)
	s.act = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	w := stubbed(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	record(w.api, request(asE2B, "POST", "/sandboxes", `{"templateID":"base"}`).WithContext(ctx))
	for _, l := range w.log.objects(t) {
		if l["level"] == "ERROR" {
			t.Errorf("logged as an error: %v", l)
		}
	}
	if l := w.audit.objects(t); len(l) != 1 || l[0]["status"] != 499.0 {
		t.Errorf("audited: %v, want a line with status 499", l)
	}
}

func TestAPanicIsAnAnswerAndALine(t *testing.T) {
	s := failing(nil)
	s.act = func(context.Context) error { panic("a hole") }
	w := stubbed(t, s)
	for _, as := range []headers{asE2B, asCube} {
		got := w.want(500, as.with("X-Request-Id", "look-here"), "DELETE", aBox, "")
		got.says("fault of ours", "look-here")
		if strings.Contains(got.text, "hole") {
			t.Errorf("%s tells strangers what happened", got.text)
		}
	}
	var found bool
	for _, l := range w.log.objects(t) {
		found = found || l["msg"] == "panic" && l["request"] == "look-here" && strings.Contains(fmt.Sprint(l["error"]), "a hole") && strings.Contains(fmt.Sprint(l["stack"]), "errors_test.go")
	}
	if !found {
		t.Errorf("no line about it with its stack: %s", w.log)
	}
	if l := w.audit.objects(t); len(l) != 2 || l[0]["status"] != 500.0 {
		t.Errorf("audited: %v", l)
	}
}

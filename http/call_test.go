package http

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestBodiesMayBeEmptyWhereNothingMustBeSaid(t *testing.T) {
	for _, as := range []headers{asE2B, asCube} {
		w := newWorld(t)
		path := w.create(as)
		for _, body := range []string{"", "  \n", "{}", "null"} {
			w.want(204, as, "POST", path+"/refreshes", body)
			w.want(201, as, "POST", path+"/snapshots", body)
			w.want(204, as, "POST", path+"/pause", body)
			w.want(201, as, "POST", path+"/resume", body)
			w.want(200, as, "POST", path+"/connect", body)
			w.want(200, as, "POST", "/v2"+path+"/connect", body)
			w.want(201, as, "POST", path+"/clone", body)
			w.want(400, as, "POST", path+"/timeout", body).says("timeout is required")
			w.want(400, as, "POST", path+"/rollback", body).says("snapshotID is required")
		}
		w.want(204, as, "DELETE", path, "")
	}
}

func TestWrongTypesAreNamedOnEveryRoute(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	for _, tt := range []struct{ verb, body, field string }{
		{"/pause", `{"memory":1}`, "memory"},
		{"/connect", `{"timeout":"5"}`, "timeout"},
		{"/resume", `{"autoPause":"yes"}`, "autoPause"},
		{"/timeout", `{"timeout":true}`, "timeout"},
		{"/timeout", `{"timeout":1.5}`, "timeout"},
		{"/refreshes", `{"duration":"1"}`, "duration"},
		{"/snapshots", `{"name":7}`, "name"},
		{"/rollback", `{"snapshotID":{}}`, "snapshotID"},
		{"/clone", `{"count":"2"}`, "count"},
		{"/clone", `{"concurrency":-1}`, "concurrency"},
	} {
		for _, as := range []headers{asE2B, asCube} {
			w.want(400, as, "POST", path+tt.verb, tt.body).says("validation error", tt.field)
		}
	}
	w.want(400, asE2B, "POST", path+"/clone", `{"count":0}`).says("1 to 100")
	w.want(400, asE2B, "POST", path+"/clone", `{"count":101}`).says("1 to 100")
	w.want(400, asE2B, "POST", path+"/snapshots", `{"name":"a b"}`).says("name")
	w.want(400, asE2B, "POST", path+"/pause", `[1]`).says("no JSON object")
}

func TestContentTypesNeedNotBeRightAndUnknownFieldsAreNothing(t *testing.T) {
	w := newWorld(t)
	for _, ct := range []string{"", "text/plain", "application/json; charset=utf-8"} {
		w.want(201, asE2B.with("Content-Type", ct), "POST", "/sandboxes", `{"templateID":"base","of a later version":{"a":[1]}}`)
	}
}

func TestALargeBodyIsRefused(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.api)
	defer server.Close()
	send := func(body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", server.URL+"/sandboxes", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-Key", testKey)
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	fill := func(n int) string {
		head, tail := `{"templateID":"base","filler":"`, `"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	if status, text := send(fill(maxBody)); status != 201 {
		t.Errorf("a body of 1 MiB: %d %s", status, text)
	}
	if status, text := send(fill(maxBody + 1)); status != 413 || !strings.Contains(text, `"code":413`) || !strings.Contains(text, "1 MiB") {
		t.Errorf("a larger body: %d %s", status, text)
	}
}

func TestUnknownRoutesAndMethodsAreAnsweredInJSON(t *testing.T) {
	w := newWorld(t)
	box := w.create(asCube)
	for _, as := range []headers{asE2B, asCube} {
		for _, path := range []string{
			"/", "/nowhere", "/sandboxes/", "//sandboxes", "/sandboxes//x", box + "/", box + "/nothing", "/v2/nothing", "/v3/sandboxes",
			"/./sandboxes", "/x/../sandboxes", "/templates/", "/api/sandboxes", box + "/pause/now", "/SANDBOXES",
		} {
			for _, method := range []string{"GET", "POST", "DELETE", "PROPFIND"} {
				got := w.want(404, as, method, path, "")
				got.says("no route", method, "/openapi.yaml")
				if got.object()["code"] != 404.0 {
					t.Errorf("%s: %s", got.what, got.text)
				}
			}
		}
		for _, tt := range []struct{ method, path, allow string }{
			{"PUT", "/sandboxes", "GET, POST"},
			{"PROPFIND", "/v2/sandboxes", "GET, POST"},
			{"POST", box, "GET, DELETE"},
			{"PATCH", box, "GET, DELETE"},
			{"GET", box + "/pause", "POST"},
			{"DELETE", box + "/connect", "POST"},
			{"POST", "/health", "GET"},
			{"PUT", "/templates/base", "GET, POST, PATCH, DELETE"},
			{"HEAD", box + "/pause", "POST"},
		} {
			got := w.want(405, as, tt.method, tt.path, "")
			if allow := got.header.Get("Allow"); allow != tt.allow {
				t.Errorf("%s: Allow %q, want %q", got.what, allow, tt.allow)
			}
			got.says(tt.method, tt.allow)
		}
	}
}

func TestOldIdsWithAClientAreTaken(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	if id := box(w.want(200, asE2B, "GET", path+"-6532622b", "")); id != path {
		t.Errorf("%s, want %s", id, path)
	}
	w.want(204, asE2B, "DELETE", path+"-node", "")
}

func TestRequestIdsAreTakenIfTheyAreDecentAndMadeIfNot(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a", "0f8fad5b-d9cb-469f-a165-70867728950e", "trace:1/2.3_4", strings.Repeat("a", 128)} {
		if got := w.call(asCube.with("X-Request-Id", id), "GET", "/sandboxes", "").header.Get("X-Request-Id"); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	made := regexp.MustCompile(`^[0-9a-f]{32}$`)
	seen := map[string]bool{}
	for _, id := range []string{"", " ", "a b", "a\nb", `a"b`, "ä", "\x1b[31m", strings.Repeat("a", 129)} {
		got := w.call(asCube.with("X-Request-Id", id), "GET", "/sandboxes", "").header.Get("X-Request-Id")
		if !made.MatchString(got) || seen[got] {
			t.Errorf("%q became %q, want a new one", id, got)
		}
		seen[got] = true
	}
	for _, h := range []headers{{}, asE2B} {
		if id := w.call(h, "GET", "/nowhere", "").header.Get("X-Request-Id"); !made.MatchString(id) {
			t.Errorf("an error has the request id %q", id)
		}
	}
}

func TestEveryAnswerSaysHowLongItTookAndOnWhat(t *testing.T) {
	w := newWorld(t)
	form := regexp.MustCompile(`^([a-z-]+;dur=\d+\.\d{3}, )*total;dur=\d+\.\d{3}$`)
	path := w.create(asE2B)
	for _, v := range verbs {
		got := w.call(asE2B, v.method, strings.Replace(v.path, aBox, path, 1), v.body)
		timing := got.header.Get("Server-Timing")
		if !form.MatchString(timing) {
			t.Errorf("%s: Server-Timing %q", got.what, timing)
		}
		if v.method == "POST" && v.path == "/sandboxes" && (!strings.Contains(timing, "engine;dur=") || !strings.Contains(timing, "store;dur=")) {
			t.Errorf("%s: Server-Timing %q, want the engine's and the store's part", got.what, timing)
		}
	}
	for _, tt := range []struct {
		h            headers
		method, path string
	}{
		{asE2B, "GET", "/nowhere"}, {asE2B, "PUT", "/sandboxes"}, {headers{}, "GET", "/sandboxes"}, {asCube, "GET", "/health"},
		{asCube, "GET", "/metrics"}, {headers{}, "OPTIONS", "/sandboxes"}, {asCube, "POST", "/v3/templates"},
	} {
		got := w.call(tt.h, tt.method, tt.path, "")
		if timing := got.header.Get("Server-Timing"); !form.MatchString(timing) {
			t.Errorf("%s: %d, Server-Timing %q", got.what, got.status, timing)
		}
	}
}

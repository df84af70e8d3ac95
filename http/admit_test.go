package http

import (
	"net/http"
	"strings"
	"testing"
)

func TestTheKeyIsAskedForEverywhereButOnHealth(t *testing.T) {
	w := newWorld(t)
	for _, r := range w.api.routes {
		want := 401
		if r.op == "health" {
			want = 200
		}
		got := w.call(headers{}, r.method, strings.NewReplacer("{", "", "}", "", "...", "").Replace(r.pattern), "")
		if got.status != want {
			t.Errorf("%s without a key: %d %s, want %d", got.what, got.status, got.text, want)
		}
		if want == 401 {
			got.says("No API key", "cube env")
		}
	}
	w.want(401, headers{}, "GET", "/nowhere", "")
	w.want(204, headers{"User-Agent", "e2b-js-sdk/2"}, "GET", "/health", "")
}

func TestTheKeyMayStandInEitherHeader(t *testing.T) {
	w := newWorld(t)
	wrong := "e2b_" + strings.Repeat("0", 40)
	for _, tt := range []struct {
		status int
		h      headers
	}{
		{200, headers{"X-API-Key", testKey}},
		{200, headers{"Authorization", "Bearer " + testKey}},
		{200, headers{"Authorization", "bearer " + testKey}},
		// E2B's client, of a user who has logged in to E2B.
		{200, headers{"X-API-Key", testKey, "Authorization", "Bearer sk_e2b_other"}},
		{200, headers{"X-API-Key", wrong, "Authorization", "Bearer " + testKey}},
		{401, headers{"X-API-Key", wrong}},
		{401, headers{"X-API-Key", testKey + "0"}},
		{401, headers{"X-API-Key", testKey[:43]}},
		{401, headers{"X-API-Key", strings.ToUpper(testKey)}},
		{401, headers{"X-API-Key", ""}},
		{401, headers{"Authorization", "Bearer " + wrong}},
		{401, headers{"Authorization", "Bearer "}},
		{401, headers{"Authorization", "Basic " + testKey}},
		{401, headers{"Authorization", testKey}},
	} {
		got := w.call(tt.h, "GET", "/metrics", "")
		if got.status != tt.status {
			t.Errorf("%v: %d, want %d", tt.h, got.status, tt.status)
		}
		if tt.status == 401 {
			got.says("API key", "cube env")
		}
	}
	for _, path := range []string{"/metrics?api_key=" + testKey, "/metrics?X-API-Key=" + testKey} {
		w.want(401, headers{}, "GET", path, "")
	}
}

func TestWithoutAKeyOnlyThisMachineIsAnswered(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Key = "" })
	ask := func(host, origin string) int {
		r := request(nil, "POST", "/sandboxes", `{"templateID":"base"}`)
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		return record(w.api, r).Code
	}
	for _, host := range []string{"localhost", "localhost:3000", "LocalHost:3000", "127.0.0.1:3000", "127.1.2.3", "[::1]:3000", "[::1]"} {
		if status := ask(host, ""); status != 201 {
			t.Errorf("Host %s: %d, want 201", host, status)
		}
		if status := ask(host, "http://localhost:5173"); status != 201 {
			t.Errorf("Host %s, a page of this machine: %d, want 201", host, status)
		}
	}
	for _, host := range []string{"", "evil.example", "evil.example:3000", "localhost.evil.example", "127.0.0.1.evil.example:3000", "0.0.0.0:3000", "192.168.1.2:3000", "[fe80::1]:3000"} {
		if status := ask(host, ""); status != 403 {
			t.Errorf("Host %q: %d, want 403", host, status)
		}
	}
	for _, origin := range []string{"https://evil.example", "null", "http://localhost.evil.example", "http://192.168.1.2", "%", "localhost"} {
		if status := ask("localhost:3000", origin); status != 403 {
			t.Errorf("Origin %s: %d, want 403", origin, status)
		}
	}
	r := request(headers{"Origin", "http://localhost:5173", "Access-Control-Request-Method", "POST"}, "OPTIONS", "/sandboxes", "")
	if h := record(w.api, r).Header(); h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("pages may read without a key: %v", h)
	}
	got := w.want(403, headers{"Origin", "https://evil.example"}, "GET", "/health", "")
	got.says("no key", "other origins")
}

func TestPagesOfAnyOriginMayAskWithTheKey(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/sandboxes", aBox, "/v2/sandboxes", "/templates/x", "/snapshots"} {
		got := w.want(204, headers{"Origin", "https://app.example", "Access-Control-Request-Method", "DELETE", "Access-Control-Request-Headers", "authorization"}, "OPTIONS", path, "")
		want := map[string]string{
			"Access-Control-Allow-Origin":  "*",
			"Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, OPTIONS",
			"Access-Control-Allow-Headers": "*, Authorization, X-API-Key, Content-Type",
			"Access-Control-Max-Age":       "86400",
		}
		for name, v := range want {
			if got.header.Get(name) != v {
				t.Errorf("OPTIONS %s: %s %q, want %q", path, name, got.header.Get(name), v)
			}
		}
		if got.text != "" {
			t.Errorf("OPTIONS %s: body %q", path, got.text)
		}
	}
	for _, h := range []headers{asE2B, {}} { // also who is refused may read why
		h := w.call(h.with("Origin", "https://app.example"), "GET", "/sandboxes", "").header
		if h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "X-Next-Token") {
			t.Errorf("an answer to a page has %v", h)
		}
		if h.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("pages may send cookies")
		}
	}
}

func TestEveryAnswerForbidsGuessingAndStoring(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/health", "/sandboxes", "/nowhere", aBox} {
		h := w.call(asCube, http.MethodGet, path, "").header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: %v", path, h)
		}
	}
}

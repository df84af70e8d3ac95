package http

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	cube "cubesandbox"
)

// FuzzCreate: whatever the body, the answer is a right one, and what reaches the
// service keeps its contract.
func FuzzCreate(f *testing.F) {
	for _, body := range []string{
		``, `null`, `[]`, `{"templateID":"base"}`, `{"templateID":"base","timeout":-1}`, `{"templateID":"base","timeout":1e9}`,
		`{"templateID":"base","envVars":{"A":"1"},"envs":{"B":"2"},"auto_pause":true,"autoResume":{"enabled":true}}`,
		`{"templateID":"base","lifecycle":{"on_timeout":"pause","auto_resume":true},"metadata":{"a":"b"},"mcp":{}}`,
		`{"templateID":"base","network":{"allow_out":["example.com"],"denyOut":["0.0.0.0/0"],"maskRequestHost":"h:${PORT}"}}`,
		`{"templateID":"base","network":{"allowPublicTraffic":false},"secure":false}`, `{"templateID":"base","TEMPLATEID":7}`,
	} {
		f.Add(body, true)
		f.Add(body, false)
	}
	f.Fuzz(func(t *testing.T, body string, e2b bool) {
		s, as := willing(), asCube
		if e2b {
			as = asE2B
		}
		got := stubbed(t, s).call(as, "POST", "/sandboxes", body)
		if !slices.Contains([]int{201, 400, 413, 501}, got.status) {
			t.Fatalf("%d %s", got.status, got.text)
		}
		n, ok := s.asked.(cube.NewSandbox)
		if ok != (got.status == 201) {
			t.Fatalf("%d, and the service was asked: %v", got.status, ok)
		}
		if !ok {
			return
		}
		if n.Template == "" || n.Timeout <= 0 && n.Timeout != cube.NeverTimeout || n.OnTimeout != cube.OnTimeoutKill && n.OnTimeout != cube.OnTimeoutPause || n.Private && n.Open {
			t.Errorf("asked for %+v", n)
		}
		for name, value := range n.Env {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
				t.Errorf("variable %q=%q", name, value)
			}
		}
		if n.Network != nil && !json.Valid(n.Network) || n.MCP != nil && !json.Valid(n.MCP) {
			t.Errorf("network %s, mcp %s", n.Network, n.MCP)
		}
	})
}

// FuzzListQuery: whatever the query, the answer is a right one, and what reaches the
// service keeps its contract.
func FuzzListQuery(f *testing.F) {
	for _, q := range []string{
		"", "state=running,paused&order=asc&limit=7&template=base", "metadata=a%3Db%26c%3Dd", "metadata=a%253D%3Db", "startedAfter=2026-01-02T15:04:05.6Z",
		"limit=0", "limit=%", "state=,", "metadata=%25zz", "metadata=;", "nextToken=x", "&&=&", "order=up",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, as := range []headers{asE2B, asCube} {
			for _, path := range []string{"/sandboxes", "/v2/sandboxes", "/snapshots"} {
				s := willing()
				w := stubbed(t, s)
				r := request(as, "GET", path, "")
				r.URL.RawQuery = query
				rec := record(w.api, r)
				got := reply{t, path + "?" + query, rec.Code, rec.Header(), rec.Body.String()}
				if err := w.check(r, got); err != nil || got.status != 200 && got.status != 400 {
					t.Fatalf("%s: %d %s: %v", got.what, got.status, got.text, err)
				}
				q, ok := s.asked.(cube.SandboxQuery)
				if ok && (q.Limit < 0 || q.Limit > pageLimit || path == "/v2/sandboxes" && q.Limit == 0) {
					t.Errorf("limit %d", q.Limit)
				}
			}
		}
	})
}

// FuzzMetadataFilter: what a client of each dialect escapes as it does is what the
// service looks for.
func FuzzMetadataFilter(f *testing.F) {
	f.Add("user", "ann")
	f.Add("a b&c=d", "50%25 + ;ü")
	f.Add("", "%zz")
	f.Fuzz(func(t *testing.T, key, value string) {
		if !utf8.ValidString(key + value) {
			return
		}
		for _, as := range []headers{asE2B, asCube} {
			filter := url.Values{key: {value}}
			if as[1] == asE2B[1] {
				filter = url.Values{url.PathEscape(key): {url.PathEscape(value)}}
			}
			s := willing()
			stubbed(t, s).want(200, as, "GET", "/v2/sandboxes?metadata="+url.QueryEscape(filter.Encode()), "")
			if got := s.asked.(cube.SandboxQuery).Metadata; len(got) != 1 || got[key] != value {
				t.Errorf("by %s: %q, want %q: %q", as[1], got, key, value)
			}
		}
	})
}

// FuzzRequestID: what is echoed is the client's decent id, or one of ours.
func FuzzRequestID(f *testing.F) {
	for _, id := range []string{"", "a", "trace:1/2.3_4", "a b", "a\r\nSet-Cookie: x", `"}`, strings.Repeat("a", 129)} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		r := request(asE2B, "GET", "/sandboxes", "")
		r.Header["X-Request-Id"] = []string{id}
		w := stubbed(t, willing())
		got := record(w.api, r).Header().Get("X-Request-Id")
		if got == "" || len(got) > 128 || strings.ContainsFunc(got, func(r rune) bool {
			return r > 'z' || r <= ' ' || strings.ContainsRune(`"'<>\;,{}()`, r)
		}) {
			t.Errorf("%q became %q", id, got)
		}
		for _, l := range w.log.objects(t) {
			if l["request"] != got {
				t.Errorf("the log has %v, the answer %q", l["request"], got)
			}
		}
	})
}

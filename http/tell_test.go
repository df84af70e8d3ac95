package http

import (
	"context"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestEveryChangingCallLeavesOneLineAndOthersNone(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	snap := fmt.Sprint(w.want(201, asE2B, "POST", path+"/snapshots", "").object()["snapshotID"])
	for _, r := range w.api.routes {
		before := len(w.audit.objects(t))
		at := strings.NewReplacer(aBox, path, "{sandboxID}", strings.TrimPrefix(path, "/sandboxes/"), "{templateID}", snap, "{", "", "...", "", "}", "").Replace(r.pattern)
		body := ""
		switch r.op {
		case "create":
			body = `{"templateID":"base"}`
		case "rollback":
			body = `{"snapshotID":"` + snap + `"}`
		case "timeout":
			body = `{"timeout":300}`
		}
		got := w.call(asE2B.with("X-Request-Id", "audited"), r.method, at, body)
		lines := w.audit.objects(t)[before:]
		changes := r.method != "GET" && r.op != "later"
		if changes != r.changes || changes != (len(lines) == 1) || len(lines) > 1 {
			t.Errorf("%s: %d lines", got.what, len(lines))
			continue
		}
		if !changes {
			continue
		}
		l := lines[0]
		for name, want := range map[string]any{
			"request": "audited", "op": r.op, "method": r.method, "path": at, "status": float64(got.status),
			"dialect": "e2b", "key": "0db7a8fc", "remote": "192.0.2.1:1234",
		} {
			if l[name] != want {
				t.Errorf("%s: %s is %v, want %v", got.what, name, l[name], want)
			}
		}
		if strings.Contains(r.pattern, "{sandboxID}") && l["sandbox"] != strings.TrimPrefix(path, "/sandboxes/") || l["time"] == nil || l["ms"] == nil {
			t.Errorf("%s: %v", got.what, l)
		}
		if (got.status >= 400) != (l["error"] != nil) {
			t.Errorf("%s: %d, error %v", got.what, got.status, l["error"])
		}
		if r.op == "kill" { // the rest needs one again
			path = w.create(asE2B)
			snap = fmt.Sprint(w.want(201, asE2B, "POST", path+"/snapshots", "").object()["snapshotID"])
		}
	}
}

func TestTheLineNamesWhatWasMade(t *testing.T) {
	w := newWorld(t)
	path := w.create(asCube)
	last := func() map[string]any {
		all := w.audit.objects(t)
		return all[len(all)-1]
	}
	if l := last(); "/sandboxes/"+fmt.Sprint(l["sandbox"]) != path {
		t.Errorf("create of %s left %v", path, l)
	}
	snap := w.want(201, asCube, "POST", path+"/snapshots", "").object()["snapshotID"]
	if l := last(); fmt.Sprint(l["other"]) != fmt.Sprintf("[%v]", snap) {
		t.Errorf("snapshot %s left %v", snap, l)
	}
	clones := values(w.want(201, asCube, "POST", path+"/clone", `{"count":3}`), "sandboxID")
	if l := last(); fmt.Sprint(l["other"]) != fmt.Sprint(clones) {
		t.Errorf("clones %v left %v", clones, l)
	}
	w.want(204, asCube, "DELETE", "/templates/"+fmt.Sprint(snap), "")
	if l := last(); fmt.Sprint(l["other"]) != fmt.Sprintf("[%v]", snap) {
		t.Errorf("delete of %s left %v", snap, l)
	}
	w.want(401, headers{}, "DELETE", path, "")
	if l := last(); l["status"] != 401.0 || l["key"] != nil {
		t.Errorf("a call without a key left %v", l)
	}
	w.want(401, headers{"X-API-Key", "wrong"}, "DELETE", path, "")
	if l := last(); l["status"] != 401.0 || l["key"] != "8810ad58" {
		t.Errorf("a call with a wrong key left %v", l)
	}
}

func TestNoSecretIsInLogsOrAuditLines(t *testing.T) {
	w := newWorld(t)
	secrets := []string{testKey, "hush-env", "hush-password", "hush-query", "hush-wrong", "hush-meta"}
	body := `{"templateID":"base","envVars":{"PIN":"hush-env"},"metadata":{"m":"hush-meta"},
		"network":{"allowPublicTraffic":false,"egressProxy":{"password":"hush-password"}}}`
	for _, as := range []headers{asE2B, asCube, asCube.with("Authorization", "Bearer "+testKey)} {
		made := w.want(201, as, "POST", "/sandboxes", body).object()
		secrets = append(secrets, fmt.Sprint(made["envdAccessToken"]), fmt.Sprint(made["trafficAccessToken"]))
		for _, v := range verbs {
			if v.path == "/templates/base" && v.method == "DELETE" {
				continue // it is needed
			}
			w.call(as, v.method, strings.Replace(v.path, aBox, "/sandboxes/"+fmt.Sprint(made["sandboxID"]), 1), v.body)
		}
		w.call(as, "GET", "/sandboxes?metadata=m%3Dhush-meta&token=hush-query", "")
		w.call(as, "POST", "/sandboxes?api_key=hush-query", `{"templateID":"base","envVars":{"A=":"hush-env"}}`)
		w.call(as, "POST", "/sandboxes", `{"templateID":"base","envVars":{"A":"hush-env\u0000"}}`)
		w.call(as, "POST", "/sandboxes", `{"templateID":"base","envVars":{"A":["hush-env"]}}`)
		w.call(as, "POST", "/sandboxes", `{"templateID":"base","envVars":"hush-env"}`)
		w.call(as, "POST", "/sandboxes", `"hush-env"`)
	}
	w.call(headers{"X-API-Key", "hush-wrong"}, "POST", "/sandboxes", body)
	w.call(headers{"Authorization", "Bearer hush-wrong"}, "POST", "/sandboxes", body)
	if len(secrets) != 12 || w.log.String() == "" || w.audit.String() == "" {
		t.Fatalf("%d secrets, logs %d, audit %d", len(secrets), len(w.log.String()), len(w.audit.String()))
	}
	for _, secret := range secrets {
		if len(secret) < 8 {
			t.Fatalf("secret %q would be found by chance", secret)
		}
		for where, text := range map[string]string{"the log": w.log.String(), "the audit lines": w.audit.String()} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has %s: %s", where, secret, text[max(0, i-200):i+len(secret)])
			}
		}
	}
}

func TestEachCallIsLoggedWithRequestSandboxAndStatus(t *testing.T) {
	w := newWorld(t)
	path := w.create(asE2B)
	w.call(asE2B.with("X-Request-Id", "look"), "GET", path, "")
	w.call(asE2B.with("X-Request-Id", "stop"), "POST", path+"/pause", "")
	seen := map[any]map[string]any{}
	for _, l := range w.log.objects(t) {
		if l["msg"] == "request" {
			seen[l["request"]] = l
		}
	}
	id := strings.TrimPrefix(path, "/sandboxes/")
	if l := seen["look"]; l["level"] != "DEBUG" || l["sandbox"] != id || l["status"] != 200.0 || l["op"] != "get" {
		t.Errorf("the line of a read: %v", l)
	}
	if l := seen["stop"]; l["level"] != "INFO" || l["sandbox"] != id || l["status"] != 204.0 || l["op"] != "pause" {
		t.Errorf("the line of a change: %v", l)
	}
}

// family is how many label sets a family of metrics has, and the gauge of the first.
func family(t *testing.T, r *prometheus.Registry, name string) (sets int, gauge float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return len(f.GetMetric()), f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metrics %s", name)
	return 0, 0
}

func TestMetricsCountAllAndStrangersDoNotMakeLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	w := newWorld(t, func(c *Config) {
		c.Metrics, c.Phases = r, func() map[string]int { return map[string]int{"running": 2, "paused": 1} }
	})
	if h := w.want(200, asCube, "GET", "/health", "").object(); h["sandboxes"] != 3.0 {
		t.Errorf("health: %v, want 3 sandboxes", h)
	}
	path := w.create(asE2B)
	for i := range 50 {
		w.call(asE2B, fmt.Sprintf("VERB%d", i), fmt.Sprintf("/x%d", i), "")
		w.call(asE2B, "GET", fmt.Sprintf("/sandboxes/%032x", i), "")
		w.call(asE2B, fmt.Sprintf("VERB%d", i), path, "")
	}
	text := w.want(200, asCube, "GET", "/metrics", "").text
	for _, line := range []string{
		`cube_sandboxes{phase="running"} 2`, `cube_sandboxes{phase="paused"} 1`,
		`cube_api_requests_total{method="POST",op="create",status="201"} 1`,
		`cube_api_requests_total{method="GET",op="get",status="404"} 50`,
		`cube_api_requests_total{method="other",op="unknown",status="404"} 50`,
		`cube_api_requests_total{method="other",op="unknown",status="405"} 50`,
		`cube_api_requests_in_flight 1`, // this one
		`cube_api_request_duration_seconds_count{op="get"} 50`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics does not say %s", line)
		}
	}
	if n, _ := family(t, r, "cube_api_requests_total"); n > 10 {
		t.Errorf("%d label sets after 150 requests of nonsense", n)
	}
	if _, in := family(t, r, "cube_api_requests_in_flight"); in != 0 {
		t.Errorf("%v requests are in flight after all", in)
	}
	if regexp.MustCompile(`[0-9a-f]{32}`).MatchString(text) {
		t.Error("an id is in the metrics")
	}
	if _, err := New(Config{Metrics: r}); err == nil {
		t.Error("two APIs share a registry")
	}
}

func TestARequestIsInFlightWhileItIs(t *testing.T) {
	s, r := failing(nil), prometheus.NewRegistry()
	inside, on := make(chan struct{}), make(chan struct{})
	s.act = func(context.Context) error {
		close(inside)
		<-on
		return nil
	}
	w := stubbed(t, s, func(c *Config) { c.Metrics = r })
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- record(w.api, request(asE2B, "DELETE", aBox, "")) }()
	<-inside
	if _, n := family(t, r, "cube_api_requests_in_flight"); n != 1 {
		t.Errorf("%v in flight, want 1", n)
	}
	close(on)
	if rec := <-done; rec.Code != 204 {
		t.Errorf("%d", rec.Code)
	}
}

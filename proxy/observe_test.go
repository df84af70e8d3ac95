package proxy

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered is the value of a counter or gauge, or the count of a histogram.
func gathered(t *testing.T, r *prometheus.Registry, metric string, labels map[string]string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if maps.Equal(has, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func TestRequestsAreCountedByKindOfPortAndClassOfStatus(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("envd"))
	w.serve(id, 1, 49999, echo("code"))
	w.serve(id, 1, 80, dripping(nil))
	w.get(name(id, envdPort), "/health")
	w.get(name(id, 49999), "/health")
	w.get(name(id, 81), "/")
	w.get("example.com", "/")
	other := map[string]string{"port": "other"}
	r := rawGet(t, w.dialPlain(), name(id, 80), "1.1")
	if n := gathered(t, w.registry, "cube_proxy_requests_in_flight", other); n != 1 {
		t.Errorf("%v requests in flight, want 1", n)
	}
	w.become(id, "ended", 1)
	r.ReadString(0)
	eventually(t, "none is in flight", func() bool {
		return gathered(t, w.registry, "cube_proxy_requests_in_flight", other) == 0
	})
	for _, c := range [][2]string{{"envd", "2xx"}, {"code", "2xx"}, {"other", "5xx"}, {"none", "4xx"}, {"other", "reset"}} {
		eventually(t, c[0]+" "+c[1]+" is counted once", func() bool {
			return gathered(t, w.registry, "cube_proxy_requests_total", map[string]string{"port": c[0], "status": c[1]}) == 1
		})
	}
	if n := gathered(t, w.registry, "cube_proxy_request_duration_seconds", other); n != 2 {
		t.Errorf("%v durations, want 2", n)
	}
	if _, err := New(Config{Sandboxes: w, Domain: domain, Metrics: w.registry}); err == nil {
		t.Error("two proxies count as one")
	}
}

// TestTheLogHasEachRequestAndNoSecret: neither a key, nor a token, nor a signature,
// nor anything else of a query.
func TestTheLogHasEachRequestAndNoSecret(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, echo("envd"))
	w.serve(id, 1, 80, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	token := w.routes[id].AccessToken
	q := url.Values{"path": {"/secret-file"}}
	q.Set("signature", signed(q, "read", token))
	headers := []string{keyHeader, key, accessHeader, token, trafficHeaders[0], "traffic-secret", "Authorization", "Bearer " + key, "Cookie", "cookie-secret"}
	w.get(name(id, envdPort), "/files?"+q.Encode(), headers...)
	w.get("localhost", "/files?"+q.Encode(), headers...)
	w.get(name(id, 80), "/?password=query-secret", headers...) // without an answer
	w.get(name(id, 81), "/?password=query-secret", headers...) // closed
	eventually(t, "each is in the log", func() bool { return strings.Count(w.log.String(), "msg=request sandbox="+string(id)) == 4 })
	for _, secret := range []string{key, token, "traffic-secret", "cookie-secret", "query-secret", "secret-file", "signature", q.Get("signature"), url.QueryEscape(q.Get("signature"))} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, w.log.String())
		}
	}
}

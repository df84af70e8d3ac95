package service

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/guest/agentapi"
)

// metricsOf asks a sandbox's agent for its metrics.
func metricsOf(t *testing.T, b client.Sandbox) (m struct {
	Time       int64   `json:"ts"`
	CPUs       int     `json:"cpu_count"`
	CPUPercent float64 `json:"cpu_used_pct"`
	MemTotal   int64   `json:"mem_total"`
	MemUsed    int64   `json:"mem_used"`
	MemCache   int64   `json:"mem_cache"`
	MemMiB     int64   `json:"mem_total_mib"`
	DiskUsed   int64   `json:"disk_used"`
	DiskTotal  int64   `json:"disk_total"`
}) {
	t.Helper()
	status, body, err := get(t.Context(), b, agentapi.EnvdPort, "/metrics", b.AccessToken, "")
	if err != nil || status != 200 {
		t.Fatalf("metrics: %d %s (%v)", status, body, err)
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("metrics %s: %v", body, err)
	}
	return m
}

// TestMetricsAreHonest: limits are those of the template, and what programs take and give
// back is seen in the next answer, also in a copy, which has its own time.
func TestMetricsAreHonest(t *testing.T) {
	s.Guard(t)
	b := create(t, client.NewSandbox{})
	if status, body, err := get(t.Context(), b, agentapi.EnvdPort, "/metrics", "", ""); err != nil || status != 401 {
		t.Errorf("without the access token: %d %s (%v), want 401", status, body, err)
	}
	m := metricsOf(t, b)
	if m.MemTotal != 512<<20 || m.MemMiB != 512 || m.CPUs != 2 || m.DiskTotal != 10240<<20 {
		t.Errorf("%+v: want the limits of the template", m)
	}
	if d := time.Now().Unix() - m.Time; d < -2 || d > 10 {
		t.Errorf("its time is %d s off", d)
	}
	if m.MemUsed <= 0 || m.MemUsed > 100<<20 || m.DiskUsed > 10<<20 {
		t.Errorf("an idle one: %+v", m)
	}
	sh(t, b, "head -c 50000000 /dev/urandom >/root/file; head -c 30000000 /dev/urandom >/dev/shm/file")
	full := metricsOf(t, b)
	if d := full.DiskUsed - m.DiskUsed; d < 50_000_000 || d > 60_000_000 {
		t.Errorf("a file of 50 MB takes %d bytes of disk", d)
	}
	if d := full.MemUsed - m.MemUsed; d < 30_000_000 || d > 60_000_000 {
		t.Errorf("a file of 30 MB in memory takes %d bytes of it", d)
	}
	if full.MemCache < 30_000_000 {
		t.Errorf("cached are %d bytes, want a file of 30 MB", full.MemCache)
	}
	sh(t, b, "rm /root/file /dev/shm/file")
	if empty := metricsOf(t, b); empty.DiskUsed > m.DiskUsed+5_000_000 {
		t.Errorf("the file is gone, and %d bytes are in use", empty.DiskUsed)
	}
	// One of two processors, for longer than between two looks.
	sh(t, b, "sh -c 'while :; do :; done' >/dev/null 2>&1 & echo")
	made, err := s.API.Clone(t.Context(), b.ID, client.Cloning{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []client.Sandbox{b, made[0]} {
		if m := metricsOf(t, b); m.CPUPercent <= 1 || m.CPUPercent > 100 {
			t.Errorf("a busy loop uses %v %% of the processors", m.CPUPercent)
		}
	}
}

// TestInternalRoutesAnswer404 from outside with every token, and to programs inside.
func TestInternalRoutesAnswer404(t *testing.T) {
	s.Guard(t)
	b := create(t, client.NewSandbox{})
	for _, path := range []string{"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		if status, body, err := get(t.Context(), b, agentapi.EnvdPort, path, b.AccessToken, ""); err != nil || status != 404 {
			t.Errorf("GET %s from outside: %d %s (%v)", path, status, body, err)
		}
		for _, address := range []string{"127.0.0.1", agentapi.Guest.Addr().String()} {
			out := sh(t, b, "curl -s -o /dev/null -w '%{http_code}' -X POST -H 'X-Access-Token: "+b.AccessToken+"' -d '{\"accessToken\":\"\"}' http://"+address+":49983"+path)
			if !strings.HasSuffix(out, "404") {
				t.Errorf("POST %s from inside, to %s: %s", path, address, out)
			}
		}
	}
	if status, _, err := get(t.Context(), b, agentapi.EnvdPort, "/envs", "", ""); err != nil || status != 401 {
		t.Errorf("the token was changed from inside: %d (%v)", status, err)
	}
}

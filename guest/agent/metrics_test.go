package agent

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestMetricsAreWhatE2BShowsAndNeedTheToken(t *testing.T) {
	a := newAgent()
	a.token, a.memory.limit = "secret", 512<<20
	a.cpu.read = busyTime
	for token, want := range map[string]int{"": 401, "wrong": 401, "secret": 200} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("X-Access-Token", token)
		w := httptest.NewRecorder()
		a.envd().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("token %q: %d, want %d", token, w.Code, want)
		}
		if w.Code != 200 {
			continue
		}
		var m map[string]float64
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
			t.Fatalf("%s: %v", w.Body, err)
		}
		names := []string{"cpu_count", "cpu_used_pct", "disk_total", "disk_used", "mem_cache", "mem_total", "mem_total_mib", "mem_used", "mem_used_mib", "ts"}
		if got := slices.Sorted(maps.Keys(m)); !slices.Equal(got, names) {
			t.Errorf("fields %q, want %q", got, names)
		}
		if m["mem_total"] != 512<<20 || m["mem_total_mib"] != 512 || m["disk_total"] <= m["disk_used"] || m["cpu_count"] < 1 {
			t.Errorf("metrics %v", m)
		}
	}
}

func TestUseOfProcessorsIsMeasuredBetweenAskings(t *testing.T) {
	busy := time.Duration(0)
	m := cpuMeter{read: func() (time.Duration, error) { return busy, nil }}
	if p, err := m.percent(t.Context()); err != nil || p != 0 || m.at.IsZero() {
		t.Errorf("nobody asked before: %v, %v", p, err)
	}
	m.at = m.at.Add(-10 * time.Second) // as if it had been so long ago
	busy = 5 * time.Second * time.Duration(runtime.NumCPU())
	if p, err := m.percent(t.Context()); err != nil || p < 40 || p > 50 {
		t.Errorf("half of the time was used: %v, %v", p, err)
	}
	m.restart()
	busy = 0 // it must not matter what was before
	if p, err := m.percent(t.Context()); err != nil || p != 0 {
		t.Errorf("in the next life: %v, %v", p, err)
	}
	m.read = func() (time.Duration, error) { return 0, errors.New("no") }
	if _, err := m.percent(t.Context()); err == nil {
		t.Error("what cannot be read is measured")
	}
	if got := share(3*time.Second, time.Second); got != 100 {
		t.Errorf("more than there is: %v", got)
	}
}

package http

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestThePageForUsersHasEveryRouteStatusAndMetric(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(c *Config) {
		c.Metrics, c.Phases = registry, func() map[string]int { return map[string]int{"running": 1} }
	})
	for _, r := range w.api.routes {
		if route := "`" + r.method + " " + r.pattern + "`"; r.op != "later" && !strings.Contains(page, route) {
			t.Errorf("docs/api.md does not have %s", route)
		}
	}
	for _, k := range conditions {
		if k.code != "" && !strings.Contains(page, "`"+k.code+"`") {
			t.Errorf("docs/api.md does not have %s", k.code)
		}
		if row := fmt.Sprintf(`(?m)^\| (\d+, )*%d(, \d+)* \| `, k.status); !regexp.MustCompile(row).MatchString(page) {
			t.Errorf("docs/api.md has no row for status %d", k.status)
		}
	}
	w.want(200, asCube, "GET", "/metrics", "")
	families, err := registry.Gather()
	if err != nil || len(families) < 4 {
		t.Fatalf("%d metrics (%v), want 4", len(families), err)
	}
	for _, f := range families {
		if !strings.Contains(page, "`"+f.GetName()+"`") {
			t.Errorf("docs/api.md does not have %s", f.GetName())
		}
	}
}

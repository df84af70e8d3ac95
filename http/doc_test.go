package http

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTheDocumentHasEveryRouteStatusAndMetric(t *testing.T) {
	b, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	has := func(words string) {
		t.Helper()
		if !strings.Contains(doc, words) {
			t.Errorf("docs/api.md does not have %s", words)
		}
	}
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(c *Config) {
		c.Metrics, c.Phases = registry, func() map[string]int { return map[string]int{"running": 1} }
	})
	for _, r := range w.api.routes {
		if r.op != "later" {
			has("`" + r.method + " " + r.pattern + "`")
		}
	}
	for _, k := range conditions {
		has(fmt.Sprintf("\n| %d | ", k.status))
		if k.code != "" {
			has("`" + k.code + "`")
		}
	}
	w.want(200, asCube, "GET", "/metrics", "")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var labels []string // in order
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		name := f.GetName()
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		has("`" + name + "`")
	}
	if len(families) < 4 {
		t.Errorf("%d metrics, want 4", len(families))
	}
}

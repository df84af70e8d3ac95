package serve

import (
	"testing"
	"time"
)

func TestOurOwnLayersAreMeasuredWithoutAnEngine(t *testing.T) {
	rows, err := Latencies(t.Context(), 50, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api.layers.get", "api.layers.list.50", "api.layers.page.100", "proxy.layers.direct", "proxy.layers.through", "proxy.added"} {
		if len(rows[name]) != 5 {
			t.Errorf("%s has %d times, want 5", name, len(rows[name]))
		}
		// A second is far beyond what any machine takes for it.
		for _, d := range rows[name] {
			if d > time.Second {
				t.Errorf("%s took %v", name, d)
			}
		}
	}
}

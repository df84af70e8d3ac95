package http

import (
	"testing"
	"time"

	cube "cubesandbox"
)

func TestWhatIsWrongWithASandboxIsSaidWhereItIsShown(t *testing.T) {
	s := willing()
	w := stubbed(t, s)
	since := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, as := range []headers{asE2B, asCube} {
		for _, sick := range []*cube.Unhealthy{nil, {Reason: "guest agent failed: it takes no connection", Since: since}} {
			s.record.Unhealthy = sick
			list := w.want(200, as, "GET", "/v2/sandboxes", "").objects()
			if len(list) != 1 {
				t.Fatalf("the list has %d entries, want one", len(list))
			}
			for _, got := range []map[string]any{w.want(200, as, "GET", aBox, "").object(), list[0]} {
				said, there := got["unhealthy"].(map[string]any)
				if there != (sick != nil) {
					t.Errorf("unhealthy: %v, want %+v", got["unhealthy"], sick)
				}
				if there && (said["reason"] != sick.Reason || said["since"] != "2026-11-30T12:00:00Z" || len(said) != 2) {
					t.Errorf("got %v, want reason and time", said)
				}
				if got["state"] != "running" {
					t.Errorf("state %v, want running: clients know no other", got["state"])
				}
			}
		}
	}
}

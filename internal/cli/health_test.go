package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

func TestWhatIsWrongWithASandboxIsShownInListAndInfo(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	sick := client.Sandbox{ID: cube.NewSandboxID(), State: "running", Unhealthy: &client.Unhealthy{Reason: "it takes\nno \x1b[2Jconnection", Since: now}}
	well := client.Sandbox{ID: cube.NewSandboxID(), State: "running"}
	var table, info, other bytes.Buffer
	for _, err := range []error{
		sandboxTable(&table, []client.Sandbox{sick, well}, false, now), sandboxInfo(&info, sick, now), sandboxInfo(&other, well, now),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(table.String(), "running, unhealthy"); n != 1 {
		t.Errorf("%d are shown as unhealthy, want one:\n%s", n, table.String())
	}
	if got := info.String(); !strings.Contains(got, "since 2026-11-30 12:00:00: it takes no ") || strings.Contains(got, "\x1b") || !strings.Contains(got, "rollback") {
		t.Errorf("got\n%s\nwant since when, the reason on one harmless line, and what to do", got)
	}
	if got := other.String(); strings.Contains(got, "unhealthy") {
		t.Errorf("of one that is well:\n%s", got)
	}
}

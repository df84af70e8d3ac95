package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCampaignIsATableOfVerbs(t *testing.T) {
	dir := t.TempDir()
	if got, err := Campaigns(dir); err != nil || got != "" {
		t.Errorf("without results: %q (%v), want nothing", got, err)
	}
	body := `{"cases":3,"lost":1,"left":0,"rows":[{"verb":"pause","at":"a#1"},{"verb":"pause","at":"a#2","lost":"it"},{"verb":"kill","at":"b#1"}]}`
	if err := os.WriteFile(filepath.Join(dir, "faults.json"), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Campaigns(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| pause | 2 at 1 points, 1 wrong |", "| kill | 1 at 1 points, 0 wrong |", "| 3, 1 lost, 0 left |"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}

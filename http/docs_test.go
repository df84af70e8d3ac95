package http

import (
	"os"
	"strings"
	"testing"
)

func TestThePageForUsersHasEveryRouteAndStatus(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, r := range newWorld(t).api.routes {
		if route := "`" + r.method + " " + r.pattern + "`"; r.op != "later" && !strings.Contains(page, route) {
			t.Errorf("docs/api.md does not have %s", route)
		}
	}
	for _, k := range conditions {
		if k.code != "" && !strings.Contains(page, "`"+k.code+"`") {
			t.Errorf("docs/api.md does not have %s", k.code)
		}
	}
}

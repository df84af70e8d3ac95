package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"cubesandbox/internal/cli/doctor"
)

func TestDoctorTellsOfTheServerAndEveryFindingHasItsNextStep(t *testing.T) {
	u := newUser(t)
	status, out, stderr := u.run("doctor", "--json")
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) < 20 {
		t.Fatalf("got %q, %v", out, err)
	}
	if want := map[bool]int{true: 3, false: 0}[doctor.Worst(all) == doctor.Fail]; status != want {
		t.Errorf("got status %d, want %d: %s", status, want, stderr)
	}
	for _, f := range all {
		if f.Found == "" || (f.Level == doctor.OK) != (f.Mend == "") {
			t.Errorf("%+v: want what was found, and what to do unless it is ok", f)
		}
		if f.Check == "server" && (f.Level != doctor.OK || !strings.Contains(f.Found, "answers")) {
			t.Errorf("server: got %+v", f)
		}
	}
	if _, table, _ := u.run("doctor"); !strings.Contains(table, "kernel") || !strings.Contains(table, " ok, ") {
		t.Errorf("got %s", table)
	}
	u.s.URL = "http://127.0.0.1:1"
	if _, table, _ := u.run("doctor"); !strings.Contains(table, "cube serve -d") {
		t.Errorf("without a server: got %s", table)
	}
}

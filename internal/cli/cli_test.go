package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/internal/local"
	"cubesandbox/probe"
)

func cube1(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = Main(t.Context(), "1.2.3", args, &out, &err)
	return status, out.String(), err.String()
}

func TestWrongCommandsEndWithStatus2AndSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nope"}, "nope"},
		{[]string{"template", "nope"}, "nope"},
		{[]string{"template", "build"}, "cube template build"},
		{[]string{"template", "rm"}, "cube template rm"},
		{[]string{"template", "ls", "extra"}, "extra"},
		{[]string{"--api-url", "nowhere", "sandbox", "ls"}, "--api-url"},
		{[]string{"probe", "--rounds", "0"}, "--rounds 0"},
		{[]string{"probe", "--rounds", "x"}, "--rounds"},
		{[]string{"bench", "--api", "--baseline"}, "--baseline"},
		{[]string{"sandbox", "nope"}, "nope"},
		{[]string{"sandbox", "info"}, "cube sandbox info"},
		{[]string{"sandbox", "create", "--timeout", "soon"}, "--timeout"},
		{[]string{"sandbox", "create", "--metadata", "x"}, "--metadata"},
		{[]string{"sandbox", "create", "--on-timeout", "x"}, "--on-timeout"},
		{[]string{"sandbox", "ls", "--state", "dead"}, "--state"},
		{[]string{"sandbox", "clone", "abcd", "--count", "0"}, "--count 0"},
		{[]string{"sandbox", "kill"}, "cube sandbox kill"},
		{[]string{"sandbox", "rollback", "abcd"}, "cube sandbox rollback"},
		{[]string{"sandbox", "recover"}, "cube sandbox recover"},
		{[]string{"sandbox", "ended", "extra"}, "extra"},
		{[]string{"snapshot", "rm"}, "cube snapshot rm"},
		{[]string{"snapshot", "verify"}, "cube snapshot verify"},
		{[]string{"gc", "extra"}, "extra"},
		{[]string{"plans", "--all"}, "--all"},
		{[]string{"completion", "tcsh"}, "tcsh"},
		{[]string{"--nope"}, "--nope"},
	} {
		status, out, err := cube1(t, c.args...)
		if status != 2 || out != "" || !strings.Contains(err, c.want) || !strings.Contains(err, "cube help") {
			t.Errorf("%q: got status %d, stdout %q, stderr %q; want 2, nothing, and %q", c.args, status, out, err, c.want)
		}
	}
}

func TestErrorsAreJSONWhenThatIsAskedFor(t *testing.T) {
	_, _, err := cube1(t, "--json", "probe", "--rounds", "0")
	var f failure
	if jerr := json.Unmarshal([]byte(err), &f); jerr != nil || f.Status != 2 || f.Error == "" || f.Advice == "" {
		t.Errorf("got %q (%v), want JSON with error, status 2 and advice", err, jerr)
	}
}

func TestEveryErrorOfTheEngineHasAStatusAndAdvice(t *testing.T) {
	for err, want := range map[error]int{
		cube.ErrInvalid: 2, errCheck: 3, cube.ErrNotFound: 4, cube.ErrConflict: 5, cube.ErrExists: 5, cube.ErrDead: 5, cube.ErrKeyReused: 5,
		&cube.CapacityError{}: 6, cube.ErrNoSpace: 6, local.ErrNotRoot: 7, cube.ErrUnavailable: 7, client.ErrStopped: 7,
		&cube.CorruptError{}: 8, cube.ErrIncompatible: 8,
	} {
		var out bytes.Buffer
		status := report(&out, fmt.Errorf("restore abc: %w", err), false, false)
		if status != want || !strings.Contains(out.String(), "restore abc") || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%v: got status %d and %q, want %d, the error and a line of advice", err, status, out.String(), want)
		}
	}
	for err, want := range map[error]int{nil: 0, errors.New("x"): 1, context.Canceled: 130} {
		if got, _ := statusOf(err); got != want {
			t.Errorf("%v: got status %d, want %d", err, got, want)
		}
	}
}

func TestHelpHasTheTableOfStatuses(t *testing.T) {
	status, out, _ := cube1(t, "help", "exit-status")
	if status != 0 || !strings.Contains(out, "130") || strings.Count(out, "\n") < len(statuses) {
		t.Errorf("got status %d, %q", status, out)
	}
}

func TestVersionSaysWhatWasBuilt(t *testing.T) {
	status, out, _ := cube1(t, "version", "--json")
	var b built
	if err := json.Unmarshal([]byte(out), &b); status != 0 || err != nil || b.Version != "1.2.3" || b.Go == "" || b.Commit == "" {
		t.Errorf("got status %d, %q (%v)", status, out, err)
	}
}

func TestDownWhereNothingRunsStartsNothing(t *testing.T) {
	dir := t.TempDir()
	status, out, err := cube1(t, "down", "--json", "--run-dir", dir+"/run", "--state-dir", dir+"/state")
	var d local.Ended
	if jerr := json.Unmarshal([]byte(out), &d); status != 0 || jerr != nil || d.Ran {
		t.Errorf("got status %d, %q, %q", status, out, err)
	}
}

func TestTheProbesTableNamesWhatFailed(t *testing.T) {
	r := probe.Report{Result: probe.Fail, Remaining: []string{"snap-1"}, SnapshotsRemaining: 1, Rounds: []probe.Round{{
		Round: 1, Checks: map[string]bool{probe.CheckHeldStill: true, probe.CheckRollbackState: false}, Error: "no way back",
	}}}
	var out bytes.Buffer
	if err := probeTable(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 checks held", "FAILED " + probe.CheckRollbackState, "ERROR no way back", "LEFT snap-1", "FAIL: 1 rounds, 0 sandboxes and 1 snapshots left"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want it to contain %q", out.String(), want)
		}
	}
}

func TestTheCommandLineToCompareWithIsKeptByTheModuleAlone(t *testing.T) {
	for engine, want := range map[string]string{
		"20260905035102-160fafc42237-52eef37f459a-amd64-s1": "20260905035102-160fafc42237",
		"20260905035102-160fafc42237-stock-amd64-s1":        "20260905035102-160fafc42237",
		"odd": "odd",
	} {
		if got := moduleOf(engine); got != want {
			t.Errorf("%s: got %q, want %q", engine, got, want)
		}
	}
}

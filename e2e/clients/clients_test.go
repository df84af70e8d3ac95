package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cubesandbox/e2e/lab"
)

// TestTheNewestE2BForJavaScriptRunsUnmodified with what `cube env` prints.
func TestTheNewestE2BForJavaScriptRunsUnmodified(t *testing.T) {
	runAll(t, newestJS, environment(t))
}

// TestE2B239ForJavaScriptRunsUnmodified: it speaks the first version of the API.
func TestE2B239ForJavaScriptRunsUnmodified(t *testing.T) {
	if lab.Form() == "" { // the newest does the same
		runProgram(t, olderJS, "first_day", environment(t), nil)
		return
	}
	runAll(t, olderJS, environment(t))
}

func TestE2BForPythonRunsUnmodified(t *testing.T) {
	runAll(t, python, environment(t))
}

func TestCubesandbox073ForPythonRunsUnmodified(t *testing.T) {
	runAll(t, cubePy, environment(t))
}

// TestTheArticlesExperimentPasses: the steps of the article of October 2026, in its
// order, with its client, and its words for what is a success.
func TestTheArticlesExperimentPasses(t *testing.T) {
	out := runProgram(t, article, "process_snapshot_probe", environment(t), nil, "--environment", "lab", "--rounds", "3")
	var result struct {
		Result    string
		Sandboxes *int `json:"new_sandboxes_remaining"`
		Snapshots *int `json:"new_snapshots_remaining"`
		Rounds    []struct {
			Checks map[string]bool
			States map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if result.Result != "PASS" || result.Sandboxes == nil || *result.Sandboxes != 0 || result.Snapshots == nil || *result.Snapshots != 0 {
		t.Errorf("got %s", out)
	}
	if len(result.Rounds) != 3 {
		t.Fatalf("%d rounds, want 3", len(result.Rounds))
	}
	for i, round := range result.Rounds {
		if len(round.Checks) != 12 || len(round.States) != 5 {
			t.Errorf("round %d has checked %v and seen %s", i+1, round.Checks, round.States)
		}
		for what, ok := range round.Checks {
			if !ok {
				t.Errorf("round %d: not so: %s", i+1, what)
			}
		}
	}
}

// TestTheClientsAreThoseThatAreClaimed: the names of the tests above say the truth.
func TestTheClientsAreThoseThatAreClaimed(t *testing.T) {
	for name, want := range map[string]string{"e2b": "2.51.0", "e2b-2.39": "2.39.0"} {
		var pkg struct{ Name, Version string }
		text, err := os.ReadFile(filepath.Join(home, "js/node_modules", name, "package.json"))
		if err == nil {
			err = json.Unmarshal(text, &pkg)
		}
		if err != nil || pkg.Name != "e2b" || pkg.Version != want {
			t.Errorf("%s is %+v (%v), want e2b %s", name, pkg, err, want)
		}
	}
	out, err := exec.Command(filepath.Join(home, python.interpreter), "-c",
		"from importlib.metadata import version; print(version('e2b'), version('cubesandbox'))").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "2.63.0 0.7.3" {
		t.Errorf("Python's are %s (%v), want 2.63.0 0.7.3", got, err)
	}
}

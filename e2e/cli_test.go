package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cubesandbox/bench"
	"cubesandbox/demo"
	"cubesandbox/e2e/leak"
	servestate "cubesandbox/internal/serve"
	"cubesandbox/probe"
)

// cubeCommand runs the command line on directories of its own and reads its JSON into
// out, unless that is nil. It returns the exit status and stderr.
func cubeCommand(t *testing.T, dir, runDir string, out any, args ...string) (status int, stderr string) {
	t.Helper()
	o := l.Options()
	cmd := exec.CommandContext(t.Context(), filepath.Join(o.BinDir, "cube"), append([]string{"--json",
		"--state-dir", filepath.Join(dir, "state"), "--run-dir", runDir, "--bin-dir", o.BinDir, "--cache-dir", o.CacheDir}, args...)...)
	cmd.Dir = ".." // the templates are there
	var stdout, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
			t.Fatalf("cube %s: stdout %q: %v; stderr %s", strings.Join(args, " "), stdout.Bytes(), err, said.Bytes())
		}
	}
	return cmd.ProcessState.ExitCode(), said.String()
}

func TestTheCommandLineDoesItsWorkAndDownLeavesNothing(t *testing.T) {
	// Sentries run as nobody, who may not pass through t.TempDir.
	dir := filepath.Join(filepath.Dir(l.Options().StateDir), "cli")
	defer os.RemoveAll(dir)
	runDir := fmt.Sprintf("/run/cube-cli-%d", os.Getpid())
	defer os.RemoveAll(runDir)
	before, err := leak.Take(leak.Where{RunDir: runDir})
	noError(t, err, "look around")

	var report probe.Report
	if status, stderr := cubeCommand(t, dir, runDir, &report, "probe", "--engine", "--rounds", "1"); status != 0 || report.Result != probe.Pass {
		t.Errorf("probe: got status %d and %+v: %s", status, report, stderr)
	}
	var shown demo.Report
	if status, stderr := cubeCommand(t, dir, runDir, &shown, "demo", "--clones", "2"); status != 0 || !shown.OK {
		t.Errorf("demo: got status %d and %+v: %s", status, shown, stderr)
	}
	var measured bench.Report
	if status, stderr := cubeCommand(t, dir, runDir, &measured, "bench", "--short", "--only", "exec.true,rollback"); status != 0 || len(measured.Rows) < 2 || measured.Machine.CPUs == 0 {
		t.Errorf("bench: got status %d and %+v: %s", status, measured, stderr)
	}
	var templates []struct{ Names []string }
	if status, stderr := cubeCommand(t, dir, runDir, &templates, "template", "ls"); status != 0 || len(templates) != 1 || templates[0].Names[0] != "base" {
		t.Errorf("template ls: got status %d and %+v: %s", status, templates, stderr)
	}
	if status, stderr := cubeCommand(t, dir, runDir, nil, "template", "rm", "nope"); status != 4 {
		t.Errorf("template rm of one that is not there: got status %d, want 4: %s", status, stderr)
	}
	serveAndUse(t, dir, runDir)
	for _, want := range []bool{true, false} {
		var ended struct{ Ran, Server bool }
		if status, stderr := cubeCommand(t, dir, runDir, &ended, "down"); status != 0 || ended.Ran != want || ended.Server != want {
			t.Errorf("down: got status %d and %+v, want ran %t: %s", status, ended, want, stderr)
		}
	}
	if err := leak.Check(leak.Where{RunDir: runDir}, before, 3*time.Second); err != nil {
		for line := range strings.Lines(err.Error()) {
			if !strings.Contains(line, " file ") { // logs stay
				t.Errorf("left behind: %s", line)
			}
		}
	}
}

// serveAndUse starts the server in the background, which it does once, and runs a
// program in a sandbox of it.
func serveAndUse(t *testing.T, dir, runDir string) {
	t.Helper()
	var first, second servestate.State
	for _, state := range []*servestate.State{&first, &second} {
		if status, stderr := cubeCommand(t, dir, runDir, state, "serve", "-d=true", "--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"); status != 0 {
			t.Fatalf("serve: got status %d: %s", status, stderr)
		}
	}
	if first.PID == 0 || first.PID != second.PID {
		t.Errorf("the second serve -d gave process %d, want that of the first, %d", second.PID, first.PID)
	}
	var made struct {
		ID string `json:"sandboxID"`
	}
	if status, stderr := cubeCommand(t, dir, runDir, &made, "sandbox", "create"); status != 0 || made.ID == "" {
		t.Fatalf("sandbox create: got status %d and %+v: %s", status, made, stderr)
	}
	if status, stderr := cubeCommand(t, dir, runDir, nil, "sandbox", "exec", made.ID[:8], "--", "/bin/sh", "-c", "exit 7"); status != 7 {
		t.Errorf("sandbox exec: got status %d, want 7: %s", status, stderr)
	}
}

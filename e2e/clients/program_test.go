package clients

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cubesandbox/client"
)

// programTime bounds one program.
const programTime = 3 * time.Minute

// A language runs the programs of one folder with one client.
type language struct {
	folder, ending string // where the programs are, and what their names end in
	interpreter    string // in home
	options        []string
	// packages are put where the programs look for them: name, and where it is in home.
	packages map[string]string
	// args are given to every program, and beside lie these files of its folder.
	args, beside []string
}

var (
	newestJS = language{"js", ".mjs", "bin/node", nil, map[string]string{"e2b": "js/node_modules/e2b"}, nil, nil}
	olderJS  = language{"js", ".mjs", "bin/node", nil, map[string]string{"e2b": "js/node_modules/e2b-2.39"}, nil, nil}
	python   = language{"python", ".py", "python/bin/python", []string{"-c", andNoMore}, nil, nil, nil}
	cubePy   = language{"cubesandbox", ".py", "python/bin/python", nil, nil, nil, nil}
	article  = language{"article", ".py", "python/bin/python", nil, nil, nil, nil}
)

// andNoMore runs a program and then ends the process as it is: the native part of E2B's
// client for Python (pyqwest 0.12) aborts one time in thirty when the interpreter takes
// itself down, after the program's last line.
const andNoMore = `import os, runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)`

// programs are the names of all programs of a folder.
func (l language) programs(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", l.folder, "*"+l.ending))
	if err != nil || len(found) == 0 {
		t.Fatalf("no program in testdata/%s: %v", l.folder, err)
	}
	for i, file := range found {
		found[i] = strings.TrimSuffix(filepath.Base(file), l.ending)
	}
	return found
}

// runAll runs every program of a folder, each as a test of its own.
func runAll(t *testing.T, l language, env map[string]string) {
	for _, name := range l.programs(t) {
		t.Run(name, func(t *testing.T) { runProgram(t, l, name, env, nil) })
	}
}

// runProgram runs a program as its user would, in a folder of its own. It must end
// well, and leave no sandbox and no snapshot.
func runProgram(t *testing.T, l language, name string, env map[string]string, prefix []string, args ...string) string {
	t.Helper()
	s.Guard(t)
	return runProgramIn(t, t.TempDir(), l, name, env, prefix, args...)
}

// runProgramIn runs it in a folder that somebody else can look into.
func runProgramIn(t *testing.T, dir string, l language, name string, env map[string]string, prefix []string, args ...string) string {
	t.Helper()
	out := runBeside(t, dir, l, name, env, prefix, args...)
	leftNothing(t)
	return out
}

// runBeside runs it while others may have sandboxes.
func runBeside(t *testing.T, dir string, l language, name string, env map[string]string, prefix []string, args ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", l.folder, name+l.ending))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+l.ending), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for pkg, where := range l.packages {
		if err := os.MkdirAll(filepath.Join(dir, "node_modules"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(home, where), filepath.Join(dir, "node_modules", pkg)); err != nil {
			t.Fatal(err)
		}
	}
	putBeside(t, dir, l.folder, l.beside)
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	argv := slices.Concat(prefix, []string{filepath.Join(home, l.interpreter)}, l.options, []string{name + l.ending}, l.args, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PYTHONFAULTHANDLER=1", "PYTHONDONTWRITEBYTECODE=1"}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if prefix != nil {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if exit, ok := err.(*exec.ExitError); ok {
			said = string(exit.Stderr)
		}
		t.Fatalf("%v\n%s%s", err, out, said)
	}
	return string(out)
}

// leftNothing wants no sandbox and no snapshot.
func leftNothing(t *testing.T) {
	t.Helper()
	boxes, err := s.API.List(t.Context(), client.Query{})
	if err != nil || len(boxes) > 0 {
		t.Errorf("the program left sandboxes: %v (%v)", boxes, err)
	}
	snaps, err := s.API.Snapshots(t.Context(), "")
	if err != nil || len(snaps) > 0 {
		t.Errorf("the program left snapshots: %v (%v)", snaps, err)
	}
}

// environment is what `cube env` prints, without what is named.
func environment(t *testing.T, without ...string) map[string]string {
	t.Helper()
	out, err := s.Command("env", "--json").Output()
	if err != nil {
		t.Fatalf("cube env: %v", err)
	}
	env := map[string]string{}
	if err := json.Unmarshal(out, &env); err != nil {
		t.Fatal(err)
	}
	for _, name := range without {
		if env[name] == "" {
			t.Fatalf("cube env does not print %s: %s", name, out)
		}
		delete(env, name)
	}
	return env
}

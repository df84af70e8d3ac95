package cli

import (
	"strings"
	"testing"

	cube "cubesandbox"
)

func TestExecEndsWithTheProgramsStatus(t *testing.T) {
	u := newUser(t)
	id := u.ok("sandbox", "create")
	for _, c := range []struct {
		args           []string
		status         int
		stdout, stderr string // what stderr contains
	}{
		{[]string{id, "--", "echo", "a", "-b"}, 0, "a -b\n", ""},
		{[]string{id, "echo", "--json", "-b"}, 0, "--json -b\n", ""}, // the program's own flags
		{[]string{id[:8], "exit", "3"}, 3, "", ""},
		{[]string{id, "--", "signal", "9"}, 137, "", ""},
		{[]string{id, "--", "signal", "15"}, 143, "", ""},
		{[]string{id, "--", "complain", "no"}, 0, "", "no\n"},
		{[]string{"--user", "root", id, "--cwd", "/srv", "-e", "A=1", "--", "whoami"}, 0, "root in /srv with 1\n", ""},
		{[]string{id, "--timeout", "30ms", "--", "forever"}, 124, "", "time was over"},
		{[]string{id, "--", "nope"}, 125, "", "no such program"},
		{[]string{id}, 125, "", "no program"},
		{[]string{id, "--nope", "--", "echo"}, 125, "", "--nope"},
		{[]string{string(cube.NewSandboxID()), "--", "echo"}, 125, "", "not found"},
	} {
		status, out, err := u.run(append([]string{"sandbox", "exec"}, c.args...)...)
		if status != c.status || out != c.stdout || !strings.Contains(err, c.stderr) || c.stderr == "" && err != "" {
			t.Errorf("%q: got status %d, %q, %q; want %d, %q, %q", c.args, status, out, err, c.status, c.stdout, c.stderr)
		}
	}
}

func TestAServerThatStopsDuringExecIsToBeStartedAgainAndNothingToBeEnded(t *testing.T) {
	u := newUser(t)
	id := u.ok("sandbox", "create")
	status, _, err := u.run("sandbox", "exec", id, "stop")
	if status != statusOurs || !strings.Contains(err, "goes on as process 1\n") || !strings.Contains(err, "cube serve -d") {
		t.Errorf("got status %d, %s", status, err)
	}
	for _, row := range statuses {
		if strings.Contains(row.advice, "cube down") {
			t.Errorf("%s: the advice ends all sandboxes: %s", row.means, row.advice)
		}
	}
}

func TestExecPassesStandardInputUnlessToldNotTo(t *testing.T) {
	u := newUser(t)
	u.stdin = "hello\nworld\n"
	id := u.ok("sandbox", "create")
	if _, out, _ := u.run("sandbox", "exec", id, "cat"); out != u.stdin {
		t.Errorf("got %q", out)
	}
	if status, out, err := u.run("sandbox", "exec", "--no-stdin", id, "cat"); status != 0 || out != "" {
		t.Errorf("got status %d, %q, %q", status, out, err)
	}
}

func TestAShellHasATerminal(t *testing.T) {
	u := newUser(t)
	u.stdin = "q"
	id := u.ok("sandbox", "create")
	if status, out, err := u.run("sandbox", "shell", id); status != 0 || out != "24x80\r\n" {
		t.Errorf("got status %d, %q, %q", status, out, err)
	}
}

func TestAPausedSandboxIsNotEnteredAndTheNextStepIsToResumeIt(t *testing.T) {
	u := newUser(t)
	id := u.ok("sandbox", "create")
	u.ok("sandbox", "pause", id)
	status, _, err := u.run("sandbox", "exec", id, "true")
	if status != statusOurs || !strings.Contains(err, id+" is paused") || !strings.Contains(err, "cube sandbox resume") {
		t.Errorf("got status %d, %s", status, err)
	}
}

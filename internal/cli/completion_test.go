package cli

import (
	"os/exec"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/client"
)

func TestIdsAndNamesAreCompletedFromTheServer(t *testing.T) {
	u := newUser(t)
	id, other := cube.SandboxID("abcd"+strings.Repeat("0", 28)), cube.SandboxID("ef01"+strings.Repeat("0", 28))
	u.s.Add(id)
	u.s.Add(other)
	snap := cube.ImageID("snap-" + strings.Repeat("7", 24))
	u.s.AddSnapshot(snap, id, "ready")
	lost := cube.SandboxID("1234" + strings.Repeat("0", 28))
	u.s.AddEnded(client.Ended{ID: lost, Reason: cube.DeathOOM, Recoverable: true, Recovery: snap})
	u.s.AddEnded(client.Ended{ID: cube.NewSandboxID(), Reason: cube.DeathKilled})
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"sandbox", "recover", ""}, []string{string(lost)}},
		{[]string{"sandbox", "recover", "ab"}, nil},
		{[]string{"snapshot", "verify", "re"}, []string{"ready"}},
		{[]string{"template", "verify", "b"}, []string{"base"}},
		{[]string{"sandbox", "info", "ab"}, []string{string(id)}},
		{[]string{"sandbox", "info", string(id), ""}, nil},
		{[]string{"sandbox", "kill", string(id), "ef"}, []string{string(other)}},
		{[]string{"sandbox", "exec", ""}, []string{string(other), string(id)}},
		{[]string{"sandbox", "rollback", "ab"}, []string{string(id)}},
		{[]string{"sandbox", "rollback", string(id), ""}, []string{"ready", string(snap)}},
		{[]string{"snapshot", "rm", "snap"}, []string{string(snap)}},
		{[]string{"snapshot", "create", "ef"}, []string{string(other)}},
		{[]string{"snapshot", "ls", "--sandbox", "ef"}, []string{string(other)}},
		{[]string{"sandbox", "create", "--template", ""}, []string{"base", "tpl-0123456789abcdef01234567", "ready", string(snap)}},
		{[]string{"template", "rm", "b"}, []string{"base"}},
		{[]string{"completion", "z"}, []string{"zsh"}},
	} {
		_, out, _ := u.run(append([]string{"__complete"}, withServer(u, c.args)...)...)
		var words []string
		for line := range strings.Lines(out) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "" && !strings.HasPrefix(word, ":") {
				words = append(words, word)
			}
		}
		if strings.Join(words, " ") != strings.Join(c.words, " ") {
			t.Errorf("%q: got %q, want %q", c.args, words, c.words)
		}
	}
}

// withServer puts the server's address where a user has it.
func withServer(u *user, args []string) []string {
	return append([]string{"--api-url", u.s.URL}, args...)
}

func TestCompletionIsSilentWithoutAServer(t *testing.T) {
	u := newUser(t)
	u.s.URL = "http://127.0.0.1:1"
	status, out, stderr := u.run("__complete", "--api-url", u.s.URL, "sandbox", "info", "")
	if status != 0 || strings.TrimSpace(out) != ":4" || strings.Contains(stderr, "no server") {
		t.Errorf("got status %d, %q, %q; want no word and no file names", status, out, stderr)
	}
}

func TestTheScriptsAreThoseOfTheirShells(t *testing.T) {
	u := newUser(t)
	for shell, want := range map[string]string{"bash": "complete -o default -F __start_cube", "zsh": "#compdef cube", "fish": "complete -c cube"} {
		if out := u.ok("completion", shell); !strings.Contains(out, want) {
			t.Errorf("%s: got %.200q", shell, out)
		}
	}
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(u.ok("completion", "bash"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v: %s", err, out)
	}
}

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/client/clienttest"
)

// user is somebody with a command line and a server.
type user struct {
	t     *testing.T
	s     *clienttest.Server
	stdin string
}

func newUser(t *testing.T) *user {
	t.Setenv("CUBE_API_KEY", clienttest.Key)
	t.Setenv("CUBE_API_URL", "")
	t.Setenv("E2B_SANDBOX_URL", "")
	return &user{t: t, s: clienttest.New(t)}
}

// run gives a command, in directories where nothing is.
func (u *user) run(args ...string) (status int, stdout, stderr string) {
	u.t.Helper()
	var out, err bytes.Buffer
	dir := u.t.TempDir()
	a := &app{version: "1.2.3", in: strings.NewReader(u.stdin), out: &out, err: &err}
	args = append([]string{"--api-url", u.s.URL, "--sandbox-url", u.s.URL, "--run-dir", dir + "/run", "--state-dir", dir + "/state"}, args...)
	status = a.main(u.t.Context(), args)
	return status, out.String(), err.String()
}

// ok gives a command that must succeed, and returns its output.
func (u *user) ok(args ...string) string {
	u.t.Helper()
	status, out, err := u.run(args...)
	if status != 0 {
		u.t.Fatalf("cube %s: got status %d: %s", strings.Join(args, " "), status, err)
	}
	return strings.TrimSuffix(out, "\n")
}

func TestASandboxLivesItsLifeByCommands(t *testing.T) {
	u := newUser(t)
	id := u.ok("sandbox", "create", "--timeout", "15m", "--metadata", "user=ann,bob", "--env", "A=1=2", "--on-timeout", "pause")
	if _, err := cube.ParseSandboxID(id); err != nil {
		t.Fatalf("create printed %q, want an id", id)
	}
	body := u.s.Calls("POST /sandboxes")[0].Body
	if body["timeout"] != 900.0 || body["metadata"].(map[string]any)["user"] != "ann,bob" || body["envVars"].(map[string]any)["A"] != "1=2" {
		t.Errorf("got %v", body)
	}
	short := id[:6]
	if out := u.ok("sandbox", "info", short); !strings.Contains(out, id) || !strings.Contains(out, "PORT-"+id+".localhost:3002") {
		t.Errorf("info: got %s", out)
	}
	snap := u.ok("snapshot", "create", short, "--name", "ready")
	if out := u.ok("sandbox", "rollback", short, "ready"); out != id {
		t.Errorf("rollback: got %s", out)
	}
	if got := u.s.Calls("POST /sandboxes/" + id + "/rollback")[0].Body["snapshotID"]; got != snap {
		t.Errorf("rollback by name: got %v, want %s", got, snap)
	}
	clones := strings.Fields(u.ok("sandbox", "clone", short, "--count", "2", "--concurrency", "1"))
	if len(clones) != 2 {
		t.Errorf("clone: got %v", clones)
	}
	if out := u.ok("sandbox", "info", clones[1]); !strings.Contains(out, "copy of") || !strings.Contains(out, id) {
		t.Errorf("info of a clone: got %s", out)
	}
	if out := u.ok("sandbox", "pause", id, clones[0]); out != id+"\n"+clones[0] || u.s.States()[cube.SandboxID(id)] != "paused" {
		t.Errorf("pause: got %s, %v", out, u.s.States())
	}
	table := u.ok("sandbox", "ls")
	if strings.Count(table, "\n") != 3 || !strings.HasPrefix(table, "ID ") || !strings.Contains(table, "paused") || !strings.Contains(table, "user=ann,bob") {
		t.Errorf("ls: got\n%s", table)
	}
	u.ok("sandbox", "resume", short, "--timeout", "never")
	if out := u.ok("snapshot", "ls", "--sandbox", short); !strings.Contains(out, snap) || !strings.Contains(out, "ready") {
		t.Errorf("snapshot ls: got\n%s", out)
	}
	if out := u.ok("snapshot", "rm", snap[:10]); out != snap {
		t.Errorf("snapshot rm: got %s", out)
	}
	u.ok(append([]string{"sandbox", "kill"}, strings.Fields(u.ok("sandbox", "ls", "-q"))...)...)
	if left := u.s.States(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestResultsAreJSONWhenThatIsAskedFor(t *testing.T) {
	u := newUser(t)
	var made client.Sandbox
	read := func(v any, args ...string) {
		t.Helper()
		if out := u.ok(append(args, "--json")...); json.Unmarshal([]byte(out), v) != nil {
			t.Errorf("cube %s: got %s", strings.Join(args, " "), out)
		}
	}
	read(&made, "sandbox", "create")
	var listed []client.Sandbox
	if read(&listed, "sandbox", "ls"); len(listed) != 1 || listed[0].ID != made.ID {
		t.Errorf("ls: got %v", listed)
	}
	var snap client.Snapshot
	read(&snap, "snapshot", "create", string(made.ID))
	var snaps []client.Snapshot
	if read(&snaps, "snapshot", "ls"); len(snaps) != 1 || snaps[0].ID != snap.ID {
		t.Errorf("snapshot ls: got %v", snaps)
	}
	var templates []struct{ Names []string }
	if read(&templates, "template", "ls"); len(templates) != 1 || templates[0].Names[0] != "base" {
		t.Errorf("template ls: got %v", templates)
	}
	var clones []client.Sandbox
	if read(&clones, "sandbox", "clone", string(made.ID)); len(clones) != 1 {
		t.Errorf("clone: got %v", clones)
	}
	var killed []string
	if read(&killed, "sandbox", "kill", string(made.ID), string(clones[0].ID)); len(killed) != 2 {
		t.Errorf("kill: got %v", killed)
	}
	if read(&listed, "sandbox", "ls"); listed == nil || len(listed) != 0 {
		t.Errorf("an empty list: got %v, want []", listed)
	}
}

func TestABeginningThatFitsSeveralIdsNamesThem(t *testing.T) {
	u := newUser(t)
	a, b := cube.SandboxID("aaaa"+strings.Repeat("0", 28)), cube.SandboxID("aaaa"+strings.Repeat("1", 28))
	u.s.Add(a)
	u.s.Add(b)
	status, _, err := u.run("sandbox", "kill", "aaaa")
	if status != 2 || !strings.Contains(err, string(a)) || !strings.Contains(err, string(b)) || len(u.s.States()) != 2 {
		t.Errorf("got status %d, %s, left %v", status, err, u.s.States())
	}
	if out := u.ok("sandbox", "kill", "aaaa1"); out != string(b) {
		t.Errorf("got %s, want %s", out, b)
	}
	for arg, want := range map[string]int{"bbbb": 4, "aaa": 2, "nope": 2} {
		if status, _, err := u.run("sandbox", "info", arg); status != want || !strings.Contains(err, arg) {
			t.Errorf("%s: got status %d, %s; want %d", arg, status, err, want)
		}
	}
}

func TestSnapshotRmNeverRemovesATemplate(t *testing.T) {
	u := newUser(t)
	for _, arg := range []string{"base", "tpl-0123456789abcdef01234567"} {
		if status, _, err := u.run("snapshot", "rm", arg); status != 4 {
			t.Errorf("%s: got status %d, %s", arg, status, err)
		}
	}
	if out := u.ok("template", "rm", "base"); out != "tpl-0123456789abcdef01234567" {
		t.Errorf("template rm: got %s", out)
	}
}

func TestOneFailureOfManyDoesNotKeepTheOthers(t *testing.T) {
	u := newUser(t)
	a, b := cube.NewSandboxID(), cube.NewSandboxID()
	u.s.Add(a)
	u.s.Add(b)
	missing := string(cube.NewSandboxID())
	status, out, err := u.run("sandbox", "kill", string(a), missing, string(b))
	if status != 4 || out != string(a)+"\n"+string(b)+"\n" || !strings.Contains(err, missing) {
		t.Errorf("got status %d, %q, %s", status, out, err)
	}
}

func TestWhatTheServerSaysHasAStatusAndANextStep(t *testing.T) {
	u := newUser(t)
	for status, want := range map[int]int{400: 2, 401: 9, 404: 4, 409: 5, 429: 6, 500: 1, 503: 7, 507: 6} {
		u.s.Fail("POST /sandboxes", status)
		got, _, err := u.run("sandbox", "create")
		if got != want || !strings.Contains(err, "create a sandbox: told to fail") || status != 500 && strings.Count(err, "\n") != 2 {
			t.Errorf("%d: got status %d, %q; want %d, what was said and a next step", status, got, err, want)
		}
	}
	t.Setenv("CUBE_API_KEY", "wrong")
	if got, _, err := u.run("sandbox", "ls"); got != 9 || !strings.Contains(err, "CUBE_API_KEY") {
		t.Errorf("a wrong key: got status %d, %s", got, err)
	}
}

func TestWithoutAServerTheNextStepIsToStartIt(t *testing.T) {
	u := newUser(t)
	u.s.URL = "http://127.0.0.1:1" // tcpmux: nothing listens there
	for _, args := range [][]string{
		{"sandbox", "ls"}, {"snapshot", "ls"}, {"probe"}, {"bench", "--api", "--only", "api.get"}, {"sandbox", "exec", "abcd", "true"},
	} {
		status, _, err := u.run(args...)
		want := 7
		if args[len(args)-1] == "true" {
			want = statusOurs
		}
		if status != want || !strings.Contains(err, "no server answers at http://127.0.0.1:1") || !strings.Contains(err, "cube serve -d") {
			t.Errorf("%v: got status %d, %s", args, status, err)
		}
	}
}

func TestOfAPausedSandboxItIsShownWhatItTakesOnDisk(t *testing.T) {
	for _, c := range []struct {
		space *client.Space
		want  bool
	}{{nil, false}, {&client.Space{Unique: 5 << 20, Shared: 1 << 30}, true}} {
		var out bytes.Buffer
		if err := sandboxInfo(&out, client.Sandbox{ID: cube.NewSandboxID(), Space: c.space}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "5.0 MiB of its own, 1.0 GiB shared"); got != c.want {
			t.Errorf("with %+v: got\n%s", c.space, out.String())
		}
	}
}

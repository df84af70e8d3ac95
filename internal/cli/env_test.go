package cli

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cubesandbox/client/clienttest"
	"cubesandbox/internal/secret"
	"cubesandbox/internal/serve"
)

func TestEnvPrintsWhatClientsNeedAndAShellCanReadIt(t *testing.T) {
	u := newUser(t)
	u.s.URL = "http://127.0.0.1:3000"
	script := u.ok("env", "--sandbox-url", "http://127.0.0.1:3002", "--state-dir", "/var/lib/it's cube")
	out, err := exec.Command("sh", "-ec", script+"\nenv").Output()
	if err != nil {
		t.Fatalf("sh: %v: %s", err, script)
	}
	for _, want := range []string{
		"CUBE_API_URL=http://127.0.0.1:3000", "CUBE_API_KEY=" + clienttest.Key, "CUBE_TEMPLATE_ID=base", "CUBE_PROXY_NODE_IP=127.0.0.1",
		"CUBE_PROXY_PORT_HTTP=3002", "CUBE_SANDBOX_DOMAIN=localhost:3002", "E2B_API_URL=http://127.0.0.1:3000",
		"E2B_SANDBOX_URL=http://127.0.0.1:3002", "E2B_API_KEY=" + clienttest.Key, "E2B_DOMAIN=localhost:3002",
		"CUBE_CA_FILE=/var/lib/it's cube/ca/ca.pem", "NODE_EXTRA_CA_CERTS=/var/lib/it's cube/ca/ca.pem",
	} {
		if !strings.Contains("\n"+string(out), "\n"+want+"\n") {
			t.Errorf("got\n%s\nwant it to set %s", script, want)
		}
	}
	if !strings.Contains(script, "\n# export SSL_CERT_FILE=") || strings.Contains(script, "\nexport SSL_CERT_FILE") {
		t.Errorf("got\n%s\nwant SSL_CERT_FILE as a comment: it replaces the system's certificates", script)
	}
	var vars map[string]string
	if err := json.Unmarshal([]byte(u.ok("env", "--json")), &vars); err != nil || vars["E2B_API_KEY"] != clienttest.Key || vars["SSL_CERT_FILE"] != "" {
		t.Errorf("JSON: got %v, %v", vars, err)
	}
}

func TestTheKeyIsReadFromTheStateDirectoryAndGoesNowhereElse(t *testing.T) {
	u := newUser(t)
	t.Setenv("CUBE_API_KEY", "")
	state := t.TempDir()
	if status, _, err := u.run("env", "--state-dir", state); status == 0 || !strings.Contains(err, "cube serve") {
		t.Errorf("without a key: got status %d, %s", status, err)
	}
	key, _, err := secret.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	if out := u.ok("env", "--state-dir", state); !strings.Contains(out, "CUBE_API_KEY="+key) {
		t.Errorf("got %s", out)
	}
	u.s.URL = "http://sandboxes.example:3000"
	status, out, stderr := u.run("env", "--state-dir", state)
	if status == 0 || strings.Contains(out+stderr, key) || !strings.Contains(stderr, "CUBE_API_KEY") {
		t.Errorf("a server elsewhere: got status %d, %s%s, want no key of ours", status, out, stderr)
	}
}

func TestTheServerThatRunsHereIsFound(t *testing.T) {
	for _, name := range []string{"CUBE_API_KEY", "CUBE_API_URL", "E2B_SANDBOX_URL"} {
		t.Setenv(name, "")
	}
	run := t.TempDir()
	said := serve.State{
		API: "127.0.0.1:4000", Data: "127.0.0.1:4002", Domain: "box.example:4002", CA: "/srv/ca.pem", StateDir: run, StartedAt: time.Now(),
	}
	if _, err := said.Announce(run); err != nil {
		t.Fatal(err)
	}
	_, out, stderr := cube1(t, "env", "--run-dir", run, "--state-dir", run)
	for _, want := range []string{"E2B_API_URL=http://127.0.0.1:4000", "CUBE_PROXY_PORT_HTTP=4002", "E2B_DOMAIN=box.example:4002", "CUBE_CA_FILE=/srv/ca.pem", "E2B_API_KEY=" + noKey} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("got %s%s, want %s", out, stderr, want)
		}
	}
}

func TestOnlyAServerThatIsOursIsAskedInsteadOfThisMachine(t *testing.T) {
	u := newUser(t)
	ask := func(apiURL, stateDir string) bool {
		t.Helper()
		a := &app{apiURL: apiURL}
		a.where.RunDir, a.where.StateDir = t.TempDir(), stateDir
		c, err := a.served(t.Context())
		if err != nil {
			t.Fatalf("%q: %v", apiURL, err)
		}
		if c != nil {
			c.Close()
		}
		return c != nil
	}
	if ask("", t.TempDir()) {
		t.Error("a server that nobody named, of another run directory, is asked")
	}
	if !ask(u.s.URL, t.TempDir()) {
		t.Error("the server that was named is not asked")
	}
	if ask("http://127.0.0.1:1", t.TempDir()) {
		t.Error("a server that does not answer is asked")
	}
}

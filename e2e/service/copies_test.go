package service

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
	"cubesandbox/guest/agentapi"
)

// draw is a program that is at work when its sandbox is cloned. Each time that somebody
// writes to a FIFO it says what it draws then.
const draw = `cat >/root/draw.py <<'X'
import os, secrets, socket, uuid
def line(path): return open(path).readline().strip()
urandom = os.open('/dev/urandom', os.O_RDONLY)
os.mkfifo('/root/ask'); os.mkfifo('/root/answer')
while True:
    open('/root/ask').read()
    with open('/root/answer', 'w') as f:
        print('getrandom', os.getrandom(16).hex(), file=f)
        print('urandom', os.read(urandom, 16).hex(), file=f)
        print('secrets', secrets.token_hex(16), file=f)
        print('uuid4', uuid.uuid4().hex, file=f)
        print('hostname', socket.gethostname(), file=f)
        print('machine-id', line('/etc/machine-id'), file=f)
        print('boot_id', line('/proc/sys/kernel/random/boot_id'), file=f)
        print('id', line('/run/cube/id'), file=f)
X
nohup python3 /root/draw.py >/root/log 2>&1 &
until [ -p /root/answer ]; do sleep 0.02; done`

// drawn prints what must differ, a name and a value on each line.
const drawn = `echo >/root/ask; cat /root/answer`

// TestCopiesDifferWhereTheyMust: 100 clones of one instant, ten in make test. What the
// kernel draws for a program that was running, machine-id, host name, boot id and tokens
// are of each its own.
func TestCopiesDifferWhereTheyMust(t *testing.T) {
	s.Guard(t)
	n := 100
	if lab.Form() == "" {
		n = 10
	}
	source := create(t, client.NewSandbox{Private: true, Timeout: cube.NeverTimeout})
	sh(t, source, draw)
	began := time.Now()
	made, err := s.API.Clone(t.Context(), source.ID, client.Cloning{Count: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clones after %v", n, time.Since(began))
	if len(made) != n {
		t.Fatalf("%d clones, want %d", len(made), n)
	}
	all := append(made, source)
	var mu sync.Mutex // guards what follows
	seen := map[string]cube.SandboxID{}
	counts := map[string]int{}
	differs := func(b client.Sandbox, what, value string) {
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
		if other, twice := seen[what+value]; twice || value == "" {
			t.Errorf("%s %q of %s is that of %s", what, value, b.ID, other)
		}
		seen[what+value] = b.ID
	}
	next := make(chan client.Sandbox, len(all))
	for _, b := range all {
		next <- b
	}
	lab.ByTwos(len(all), func() bool {
		b := <-next
		out, err := try(t.Context(), b, drawn)
		if err != nil {
			t.Errorf("sandbox %s: %v", b.ID, err)
			return true
		}
		for line := range strings.Lines(out) {
			what, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			differs(b, what, value)
			if want := string(b.ID); what == "id" && value != want || what == "hostname" && !strings.HasPrefix(want, value) {
				t.Errorf("%s of %s is %q", what, b.ID, value)
			}
		}
		differs(b, "access token", b.AccessToken)
		differs(b, "traffic token", b.TrafficToken)
		return true
	})
	t.Logf("all asked after %v", time.Since(began))
	for _, what := range []string{"getrandom", "urandom", "secrets", "uuid4", "hostname", "machine-id", "boot_id", "id", "access token", "traffic token"} {
		if counts[what] != n+1 {
			t.Errorf("%s is known of %d sandboxes, want %d", what, counts[what], n+1)
		}
	}
}

// get sends a request to a port of a sandbox through the data plane, with these tokens,
// and returns status and body.
func get(ctx context.Context, b client.Sandbox, port int, path, access, traffic string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.State.Data+path, nil)
	if err != nil {
		return 0, "", err
	}
	r.Close = true // the next life has another connection
	for name, value := range map[string]string{
		"E2b-Sandbox-Id": string(b.ID), "E2b-Sandbox-Port": strconv.Itoa(port), "X-Access-Token": access, "E2b-Traffic-Access-Token": traffic,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, strings.TrimSpace(string(body)), err
}

// opens checks which of two sandboxes' tokens open a sandbox: its agent, and another port,
// on which nothing listens.
func opens(t *testing.T, b, other client.Sandbox) {
	t.Helper()
	for _, c := range []struct {
		name            string
		port            int
		access, traffic string
		want            int
	}{
		{"its access token", agentapi.EnvdPort, b.AccessToken, "", 200},
		{"the other's access token", agentapi.EnvdPort, other.AccessToken, "", 401},
		{"no access token", agentapi.EnvdPort, "", b.TrafficToken, 401},
		{"its traffic token", 9999, "", b.TrafficToken, 502},
		{"the other's traffic token", 9999, "", other.TrafficToken, 403},
		{"no traffic token", 9999, b.AccessToken, "", 403},
	} {
		if got, body, err := get(t.Context(), b, c.port, "/envs", c.access, c.traffic); err != nil || got != c.want {
			t.Errorf("sandbox %s with %s: %d %s (%v), want %d", b.ID, c.name, got, body, err, c.want)
		}
	}
}

// TestACloneIsOpenedByItsOwnTokensAlone, and a rollback, a pause and a resume change none.
func TestACloneIsOpenedByItsOwnTokensAlone(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	source := create(t, client.NewSandbox{Private: true})
	snap, err := s.API.Snapshot(ctx, source.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.API.Clone(ctx, source.ID, client.Cloning{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The image that it is made of holds the source's token.
	again, err := s.API.Create(ctx, client.NewSandbox{Template: string(snap.ID), Private: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []client.Sandbox{made[0], again} {
		opens(t, b, source)
		opens(t, source, b)
	}
	if err := s.API.Rollback(ctx, source.ID, string(snap.ID)); err != nil {
		t.Fatal(err)
	}
	opens(t, source, made[0])
	// A clone goes back to a snapshot that another sandbox's tokens were in.
	own, err := s.API.Snapshot(ctx, again.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.API.Rollback(ctx, again.ID, string(own.ID)); err != nil {
		t.Fatal(err)
	}
	opens(t, again, source)
	if err := s.API.Pause(ctx, source.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Resume(ctx, source.ID, 0); err != nil {
		t.Fatal(err)
	}
	opens(t, source, made[0])
}

// TestARequestIsAnsweredOnlyAfterTheHooksHaveRun: a server inside says what is in a file,
// which a slow hook changes. Requests go on all the time while the sandbox is rolled back,
// paused and woken by one of them, and none is ever answered with what was in the image.
func TestARequestIsAnsweredOnlyAfterTheHooksHaveRun(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	b := create(t, client.NewSandbox{AutoResume: true})
	sh(t, b, `mkdir -p /srv/www /etc/cube/after-restore.d && cd /srv/www && echo image >file
printf '#!/bin/sh\nsleep 0.7; echo waited in $CUBE_GENERATION\necho "life $CUBE_GENERATION" >/srv/www/file\n' >/etc/cube/after-restore.d/slow && chmod 755 /etc/cube/after-restore.d/slow
nohup python3 -m http.server -b 127.0.0.1 8000 >/tmp/log 2>&1 &
until bash -c 'exec 3<>/dev/tcp/127.0.0.1/8000' 2>/dev/null; do sleep 0.02; done`)
	snap, err := s.API.Snapshot(ctx, b.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.API.Create(ctx, client.NewSandbox{Template: string(snap.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if status, body, err := get(ctx, made, 8000, "/file", "", ""); err != nil || status != 200 || body != "life 1" {
		t.Errorf("right after a create: %d %q (%v)", status, body, err)
	}
	sh(t, b, "echo changed >/srv/www/file")
	during(t, b, []string{"changed", "life 2"}, func() error { return s.API.Rollback(ctx, b.ID, string(snap.ID)) })
	sh(t, b, "echo image >/srv/www/file")
	if err := s.API.Pause(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	during(t, b, []string{"life 3"}, func() error { return nil })
	waitFor(t, "the log says what the hook has said", func() bool {
		log, err := os.ReadFile(s.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "sandbox="+string(b.ID)) && strings.Contains(line, "after-restore.d/slow: done after") && strings.Contains(line, "waited in 3") {
				return true
			}
		}
		return false
	})
}

// during has three clients ask all the time while something is done, and until the last
// of the answers has come. No answer may be another than these.
func during(t *testing.T, b client.Sandbox, want []string, do func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for {
				status, body, err := get(ctx, b, 8000, "/file", "", "")
				switch {
				case ctx.Err() != nil:
					t.Errorf("%q is never answered; the last was %d %q (%v)", want[len(want)-1], status, body, err)
					return
				case err != nil || status != 200: // of a life that has ended
				case !slices.Contains(want, body):
					t.Errorf("a request is answered %q, before the hook has run; want one of %q", body, want)
					return
				case body == want[len(want)-1]:
					return
				}
			}
		})
	}
	if err := do(); err != nil {
		t.Error(err)
	}
	clients.Wait()
}

package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
)

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}

// metric is the sum of a family of the server's metrics.
func metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.State.API+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", s.Key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var v float64
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err == nil {
			sum += v
		}
	}
	return sum
}

// serveInside starts a server in a sandbox that answers each connection with a line
// and then says nothing until the other side goes.
const serveInside = `cat >/tmp/serve.py <<'X'
import http.server, time
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nhello from inside\n")
        self.wfile.flush()
        time.sleep(1000)
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), H).serve_forever()
X
nohup python3 /tmp/serve.py >/tmp/serve.log 2>&1 &
until bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080' 2>/dev/null; do sleep 0.02; done`

// TestAServerInsideIsReachedByHostOverTLSAndResetOnKill: with the certificate of the
// local authority, as a browser would.
func TestAServerInsideIsReachedByHostOverTLSAndResetOnKill(t *testing.T) {
	s.Guard(t)
	b := create(t, client.NewSandbox{})
	sh(t, b, serveInside)
	pem, err := os.ReadFile(s.State.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	host := fmt.Sprintf("8080-%s.localhost", b.ID)
	conn, err := tls.Dial("tcp", s.State.Data, &tls.Config{RootCAs: roots, ServerName: host})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host)
	buf := make([]byte, 4096)
	var got strings.Builder
	for !strings.Contains(got.String(), "hello from inside") {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.Write(buf[:n])
	}
	if err := s.API.Kill(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v, want a reset", err)
	}
	resp, err := request(t, b.ID, 8080, "python-httpx")
	if err != nil || resp.StatusCode != http.StatusGone {
		t.Errorf("after the kill: %v (%v), want 410", resp, err)
	}
}

func request(t *testing.T, id cube.SandboxID, port int, agent string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.State.Data+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = fmt.Sprintf("%d-%s.localhost", port, id)
	r.Header.Set("User-Agent", agent)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err == nil {
		defer resp.Body.Close()
	}
	return resp, err
}

// TestTokensAreCheckedWithRealSandboxes: the agent wants the access token, the
// proxy the traffic token, and a clone has its own.
func TestTokensAreCheckedWithRealSandboxes(t *testing.T) {
	s.Guard(t)
	b := create(t, client.NewSandbox{Private: true})
	clones, err := s.API.Clone(t.Context(), b.ID, client.Cloning{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	list := func(id cube.SandboxID, token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.State.Data+"/process.Process/List", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = fmt.Sprintf("49983-%s.localhost", id)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Access-Token", token)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := list(b.ID, b.AccessToken); got != 200 {
		t.Errorf("with its token: %d", got)
	}
	for what, status := range map[string]int{
		"no token":          list(b.ID, ""),
		"a wrong token":     list(b.ID, b.AccessToken[1:]+"0"),
		"its clone's":       list(b.ID, clones[0].AccessToken),
		"its own, to clone": list(clones[0].ID, b.AccessToken),
	} {
		if status != 401 {
			t.Errorf("%s: got %d, want 401", what, status)
		}
	}
	if resp, err := request(t, b.ID, 80, "x"); err != nil || resp.StatusCode != 403 {
		t.Errorf("a private port without its token: %v (%v)", resp, err)
	}
}

// TestATimeoutFires: with the clock of either dialect, and the sandbox answers no
// more.
func TestATimeoutFires(t *testing.T) {
	s.Guard(t)
	began := time.Now()
	b := create(t, client.NewSandbox{Timeout: 3 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waitFor(t, "it has ended, for that reason", func() bool {
		_, err := s.API.Get(ctx, b.ID)
		return errors.Is(err, cube.ErrNotFound) && strings.Contains(err.Error(), "timeout")
	})
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("it ended after %v, want 3 s at least", took)
	}
	if err := s.API.Pause(ctx, b.ID); !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestNoAuthIsForLoopbackOnly: the server does not start where strangers could
// reach it without a key.
func TestNoAuthIsForLoopbackOnly(t *testing.T) {
	out, err := s.Command("serve", "--no-auth", "--listen", "0.0.0.0:0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "loopback") {
		t.Errorf("got %v, %s", err, out)
	}
	if _, _, err := net.SplitHostPort(s.State.API); err != nil {
		t.Error(err)
	}
}

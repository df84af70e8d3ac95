package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/process"
	"cubesandbox/guest/spawn"
)

func newAgent() *Agent {
	a := &Agent{events: newEventLog(), conns: newConnections()}
	a.memory = newMemoryWatch(func() bool { return false }, a.oom)
	none := func(context.Context) (process.Starter, error) { return nil, spawn.ErrInitDied }
	a.table = process.NewTable(none, nil, nil, a.memory.changed)
	return a
}

// pair is a connection as a tracked listener accepts it, and its other end.
func pair(t *testing.T, cs *connections, inside bool) (*conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{TCPConn: raw.(*net.TCPConn), of: cs, inside: inside}
	if !cs.add(c) {
		t.Fatal("the connection is refused")
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}

func isOpen(t *testing.T, peer net.Conn) bool {
	t.Helper()
	peer.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := peer.Read(make([]byte, 1))
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestNewGenerationClosesConnectionsOfTheEarlierLife(t *testing.T) {
	cs := newConnections()
	old, oldPeer := pair(t, cs, false)
	caller, callerPeer := pair(t, cs, false)
	_, insidePeer := pair(t, cs, true)
	cs.begin(caller)
	_, newPeer := pair(t, cs, false)
	for name, c := range map[string]struct {
		peer net.Conn
		open bool
	}{"old": {oldPeer, false}, "caller": {callerPeer, true}, "inside": {insidePeer, true}, "new": {newPeer, true}} {
		if got := isOpen(t, c.peer); got != c.open {
			t.Errorf("%s connection open: %v, want %v", name, got, c.open)
		}
	}
	if old.Close(); len(cs.open) != 3 {
		t.Errorf("%d connections are known, want 3", len(cs.open))
	}
	cs.closeAll(caller)
	if len(cs.open) != 1 || !isOpen(t, callerPeer) {
		t.Errorf("after closing all others, %d are known", len(cs.open))
	}
}

func TestConnectionsFromInsideCannotKeepTheServerOut(t *testing.T) {
	cs := newConnections()
	for range maxInside {
		if !cs.add(&conn{of: cs, inside: true}) {
			t.Fatal("refused below the limit")
		}
	}
	if cs.add(&conn{of: cs, inside: true}) {
		t.Error("one too many from inside is accepted")
	}
	if !cs.add(&conn{of: cs}) {
		t.Error("one from outside is refused")
	}
}

func TestControlPortIsForTheGatewayOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cs := newConnections()
	go (&tracked{l, cs, true}).Accept()
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return // reset before Dial saw that it was connected
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a connection from loopback stays open: %v", err)
	}
}

func TestEventsAreNumberedAndBounded(t *testing.T) {
	l := newEventLog()
	_, more := l.after(0)
	for i := range maxEvents + 10 {
		l.add(agentapi.EventOOM, fmt.Sprint(i))
	}
	select {
	case <-more:
	default:
		t.Error("who waits for events is not told")
	}
	all, _ := l.after(0)
	if len(all) != maxEvents || all[0].Number != 11 || all[len(all)-1].Number != l.newest() {
		t.Errorf("%d events, from %d to %d", len(all), all[0].Number, all[len(all)-1].Number)
	}
	if last, _ := l.after(l.newest() - 1); len(last) != 1 || last[0].Detail != fmt.Sprint(maxEvents+9) {
		t.Errorf("the last is %+v", last)
	}
	if none, _ := l.after(1 << 60); none != nil {
		t.Errorf("after the end come %+v", none)
	}
}

func TestEventsAreStreamed(t *testing.T) {
	a := newAgent()
	srv := httptest.NewServer(a.control())
	defer srv.Close()
	a.events.add(agentapi.EventInitDied, "one")
	a.events.add(agentapi.EventOOM, "two")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/events?after=1", nil)
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	dec := json.NewDecoder(res.Body)
	for _, want := range []string{"two", "three"} {
		var e agentapi.Event
		if err := dec.Decode(&e); err != nil || e.Detail != want {
			t.Fatalf("event %+v, %v; want %s", e, err, want)
		}
		if want == "two" {
			a.events.add(agentapi.EventOOM, "three")
		}
	}
}

func TestPaceGrowsWithWhatIsLeft(t *testing.T) {
	const limit = 512 << 20
	if got := pace(threshold(limit), limit); got != 0 {
		t.Errorf("at the threshold: %v, want to act", got)
	}
	if got := pace(threshold(limit)-1, limit); got != minLook {
		t.Errorf("just below it: %v, want %v", got, minLook)
	}
	if got := pace(0, 1<<40); got != maxLook {
		t.Errorf("far from it: %v, want %v", got, maxLook)
	}
	last := time.Duration(0)
	for used := threshold(limit) - 1; used > 0; used -= 1 << 20 {
		got := pace(used, limit)
		if got < last {
			t.Fatalf("with %d bytes used %v, with more %v", used, got, last)
		}
		// What is taken until the next look must fit into what the host allows.
		if taken := int64(got.Seconds() * fillRate); used+taken > limit+64<<20 {
			t.Fatalf("with %d bytes used the next look is in %v", used, got)
		}
		last = got
	}
}

func TestConfigureRefusesWhatCannotBe(t *testing.T) {
	a := newAgent()
	a.generation = 5
	srv := httptest.NewServer(a.control())
	defer srv.Close()
	for body, want := range map[string]int{
		`{`:                             http.StatusBadRequest,
		`{"version":1,"sandboxId":"x"}`: http.StatusConflict,
		`{"version":1,"generation":7}`:  http.StatusConflict,
		`{"version":1,"sandboxId":"x","generation":4}`: http.StatusConflict,
		`{"env":"` + strings.Repeat("x", maxConfigure): http.StatusBadRequest,
	} {
		res, err := srv.Client().Post(srv.URL+"/v1/configure", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%.60s: %d, want %d", body, res.StatusCode, want)
		}
	}
}

func TestASandboxThatHasBegunToLiveTakesNoFiles(t *testing.T) {
	a := newAgent()
	a.generation = 1
	srv := httptest.NewServer(a.control())
	defer srv.Close()
	// More than what the connection holds: the answer comes before it is read.
	body := io.LimitReader(zeros{}, 64<<20)
	res, err := srv.Client().Post(srv.URL+"/v1/files", "application/x-tar", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusConflict || !strings.Contains(string(text), "before the first configure") {
		t.Errorf("got %d %q", res.StatusCode, text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestTokenIsAskedForWhereItShouldBe(t *testing.T) {
	a := newAgent()
	a.token = "secret"
	a.table.SetEnv(map[string]string{"A": "1"})
	for _, c := range []struct {
		method, path, token string
		code                int
		body                string
	}{
		{"GET", "/health", "", 204, ""},
		{"GET", "/envs", "", 401, `{"code":401,"message":"` + unauthorized + `"}`},
		{"GET", "/envs", "secrets", 401, ""},
		{"GET", "/envs", "secret", 200, `{"A":"1"}`},
		{"POST", "/process.Process/List", "", 401, ""},
		{"POST", "/process.Process/List", "secret", 200, "{}"},
		{"POST", "/filesystem.Filesystem/Stat", "", 401, ""},
		{"GET", "/files?path=a", "", 401, `{"code":401,"message":"missing signature query parameter"}`},
		{"POST", "/files/compose", "", 401, `{"code":401,"message":"` + unauthorized + `"}`},
		{"POST", "/files/compose", "secret", 400, `{"code":400,"message":"source_paths must not be empty"}`},
		{"POST", "/filesystem.Filesystem/CreateWatcher", "", 401, ""},
		{"POST", "/init", "secret", 404, ""}, // not from the gateway
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			r.Header.Set("X-Access-Token", c.token)
		}
		w := httptest.NewRecorder()
		a.envd().ServeHTTP(w, r)
		if w.Code != c.code || c.body != "" && strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%s %s with %q: %d %q, want %d %q", c.method, c.path, c.token, w.Code, w.Body, c.code, c.body)
		}
	}
}

// upgraded serves the control protocol on loopback and asks it to dial a port.
func upgraded(t *testing.T, port int) (*net.TCPConn, *bufio.Reader, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: newAgent().control(), ConnContext: connContext}
	go srv.Serve(&tracked{l, newConnections(), false})
	t.Cleanup(func() { srv.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	// Bytes of the stream may come with the request.
	fmt.Fprintf(c, "POST /v1/dial?port=%d HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: cube-dial\r\n\r\nearly ", port)
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for {
		if h, err := r.ReadString('\n'); err != nil || h == "\r\n" {
			return c.(*net.TCPConn), r, line
		}
	}
}

func TestDialCarriesBytesAndHalfCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c) // ends with the client's half
		c.Write(append([]byte("heard: "), b...))
	}()
	c, r, line := upgraded(t, l.Addr().(*net.TCPAddr).Port)
	if !strings.Contains(line, " 101 ") {
		t.Fatalf("status line %q", line)
	}
	want := bytes.Repeat([]byte("late "), 100_000)
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	c.CloseWrite()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, append([]byte("heard: early "), want...)) {
		t.Errorf("%d bytes come back, %v", len(got), err)
	}
}

func TestDialOfAClosedPortIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, _, line := upgraded(t, l.Addr().(*net.TCPAddr).Port); !strings.Contains(line, " 502 ") {
		t.Errorf("status line %q", line)
	}
}

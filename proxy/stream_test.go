package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/websocket"

	cube "cubesandbox"
)

// dripping answers with a line, and then with nothing until the client goes.
func dripping(gone chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		if gone != nil {
			close(gone)
		}
	})
}

// rawGet sends a request over a connection and reads the answer up to "first".
func rawGet(t *testing.T, c net.Conn, host, version string) *bufio.Reader {
	t.Helper()
	fmt.Fprintf(c, "GET / HTTP/%s\r\nHost: %s\r\n\r\n", version, host)
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the first line did not come: %v", err)
		}
		if strings.TrimSpace(line) == "first" {
			return r
		}
	}
}

func (w *world) dialPlain() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// TestOnKillStreamsAreResetAndNotEndedCleanly: whether the length of the answer is
// said by chunks, by the end of the connection, under TLS, or is that of an upgrade.
func TestOnKillStreamsAreResetAndNotEndedCleanly(t *testing.T) {
	w := newWorld(t)
	for what, c := range map[string]struct {
		conn    func(host string) net.Conn
		version string
	}{
		"chunked":            {func(string) net.Conn { return w.dialPlain() }, "1.1"},
		"until the end":      {func(string) net.Conn { return w.dialPlain() }, "1.0"},
		"chunked, TLS":       {func(host string) net.Conn { return w.secure(host, "http/1.1") }, "1.1"},
		"until the end, TLS": {func(host string) net.Conn { return w.secure(host, "http/1.1") }, "1.0"},
	} {
		id := w.sandbox()
		w.serve(id, 1, 80, dripping(nil))
		host := name(id, 80)
		r := rawGet(t, c.conn(host), host, c.version)
		w.become(id, cube.PhaseEnded, 1)
		if _, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the stream ended with %v, want a reset", what, err)
		}
	}
}

// TestOnKillAnHTTP2StreamIsResetAndTheConnectionStays: plain and under TLS, and for
// gRPC, where the guest's connection is HTTP/2 too.
func TestOnKillAnHTTP2StreamIsResetAndTheConnectionStays(t *testing.T) {
	w := newWorld(t)
	b := w.sandbox()
	w.serve(b, 1, 80, echo("b"))
	secure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer secure.CloseIdleConnections()
	for what, c := range map[string]struct {
		client *http.Client
		scheme string
		kind   string
	}{
		"plain": {over2(t), "http", ""},
		"TLS":   {&http.Client{Transport: secure}, "https", ""},
		"gRPC":  {over2(t), "http", "application/grpc"},
	} {
		a := w.sandbox()
		w.serve(a, 1, 80, dripping(nil))
		ask := func(id cube.SandboxID) *http.Response {
			r := w.request(http.MethodGet, name(id, 80), "/", nil, "Content-Type", c.kind)
			r.URL.Scheme = c.scheme
			resp, err := c.client.Do(r)
			if err != nil || resp.ProtoMajor != 2 || resp.StatusCode != 200 {
				t.Fatalf("%s: %v (%v)", what, resp, err)
			}
			return resp
		}
		resp := ask(a)
		body := bufio.NewReader(resp.Body)
		if _, err := body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		w.become(a, cube.PhaseEnded, 1)
		if _, err := io.ReadAll(body); err == nil || !strings.Contains(err.Error(), "stream error") {
			t.Errorf("%s: got %v, want a stream error", what, err)
		}
		resp.Body.Close()
		ask(b).Body.Close() // another sandbox, over the same connection
	}
}

func TestACleanEndStaysOne(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nfirst\nlast\n")
			c.(*net.TCPConn).CloseWrite()
		}
	}()
	w.at(id, 1, 80, ln.Addr().String())
	r := rawGet(t, w.dialPlain(), name(id, 80), "1.0")
	if b, err := io.ReadAll(r); err != nil || string(b) != "last\n" {
		t.Errorf("got %q (%v)", b, err)
	}
}

// repeat sends every message back.
func repeat(c *websocket.Conn) {
	for {
		var m string
		if websocket.Message.Receive(c, &m) != nil || websocket.Message.Send(c, m) != nil {
			return
		}
	}
}

func TestWebSocketsPassAndAreResetOnKill(t *testing.T) {
	w := newWorld(t)
	for _, secure := range []bool{false, true} {
		id := w.sandbox()
		w.serve(id, 1, 80, websocket.Handler(repeat))
		conf, err := websocket.NewConfig("ws://"+name(id, 80)+"/", "http://example.com")
		if err != nil {
			t.Fatal(err)
		}
		conn := w.dialPlain()
		if secure {
			conn = w.secure(name(id, 80), "http/1.1")
		}
		ws, err := websocket.NewClient(conf, conn)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			want := strings.Repeat("x", 1+i*40000)
			var got string
			if err := errors.Join(websocket.Message.Send(ws, want), websocket.Message.Receive(ws, &got)); err != nil || got != want {
				t.Fatalf("got %d bytes (%v), want %d", len(got), err, len(want))
			}
		}
		if w.touched() == 0 {
			t.Error("an open WebSocket does not count as traffic")
		}
		w.become(id, cube.PhaseEnded, 1)
		var got string
		if err := websocket.Message.Receive(ws, &got); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("TLS %v: got %v, want a reset", secure, err)
		}
		eventually(t, "it counts no more", func() bool { return w.touched() == 0 })
	}
}

func TestAnyUpgradePassesWithHalfCloses(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, agreeing("lines", func(c net.Conn, buf *bufio.ReadWriter) {
		b, _ := io.ReadAll(buf) // to the client's half-close
		fmt.Fprintf(c, "%d bytes", len(b))
	}))
	c := w.dialPlain()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n", name(id, 80))
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v (%v)", resp, err)
	}
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(r); err != nil || string(b) != "5 bytes" {
		t.Errorf("got %q (%v)", b, err)
	}
}

func TestServerSentEventsComeAtOnceAndAClientThatGoesIsNoticed(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	gone := make(chan struct{})
	w.serve(id, 1, 80, dripping(gone))
	c := w.dialPlain()
	rawGet(t, c, name(id, 80), "1.1") // it came although the answer has not ended
	c.Close()
	<-gone
}

func TestBodiesStreamBothWaysAtTheSameTime(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).EnableFullDuplex()
		rw.Header().Set("Trailer", "X-End")
		rw.WriteHeader(200)
		in := bufio.NewReader(r.Body)
		for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
			io.WriteString(rw, "got "+line)
			rw.(http.Flusher).Flush()
		}
		rw.Header().Set("X-End", "yes")
	}))
	body, say := io.Pipe()
	r := w.request(http.MethodPost, name(id, 80), "/", body)
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := client1.Do(r)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	io.WriteString(say, "0\n")
	resp := <-answered
	defer resp.Body.Close()
	out := bufio.NewReader(resp.Body)
	for i := range 5 {
		if line, err := out.ReadString('\n'); err != nil || line != fmt.Sprintf("got %d\n", i) {
			t.Fatalf("got %q (%v)", line, err)
		}
		fmt.Fprintf(say, "%d\n", i+1)
	}
	say.Close()
	if _, err := io.ReadAll(out); err != nil || resp.Trailer.Get("X-End") != "yes" {
		t.Errorf("trailer %v (%v)", resp.Trailer, err)
	}
}

func TestARequestThatWasNotAnsweredWhenTheSandboxEndedIsTold(t *testing.T) {
	w := newWorld(t)
	for _, agent := range []string{"python-httpx", "e2b-js-sdk/2.51.0"} {
		id := w.sandbox()
		arrived := make(chan struct{})
		w.serve(id, 1, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // or the server does not notice that the client goes
			close(arrived)
			<-r.Context().Done()
		}))
		go func() { <-arrived; w.become(id, cube.PhaseEnded, 1) }()
		want := map[bool]int{true: 502, false: 410}[strings.HasPrefix(agent, "e2b")]
		if status, body, _ := w.do(w.request(http.MethodPost, name(id, 80), "/", strings.NewReader("x"), "User-Agent", agent)); status != want {
			t.Errorf("%s: got %d %q, want %d", agent, status, body, want)
		}
	}
}

// TestConnectionsAreNeverSharedBetweenLives: after a rollback the kept-alive
// connection of the life before is not used, and its server not reached.
func TestConnectionsAreNeverSharedBetweenLives(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, echo("first life"))
	w.serve(id, 2, 80, echo("second life"))
	keep := &http.Client{Transport: &http.Transport{}}
	defer keep.CloseIdleConnections()
	ask := func() string {
		resp, err := keep.Do(w.request(http.MethodGet, name(id, 80), "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for range 3 {
		if got := ask(); !strings.HasPrefix(got, "first life") {
			t.Fatalf("got %q", got)
		}
	}
	if w.dials != 1 {
		t.Errorf("%d connections for three requests, want one that is kept", w.dials)
	}
	w.mu.Lock()
	r := w.routes[id]
	r.Generation = 2 // the old connection is still open
	w.routes[id] = r
	w.mu.Unlock()
	if got := ask(); !strings.HasPrefix(got, "second life") {
		t.Errorf("got %q", got)
	}
}

func TestCurlSpeaksHTTP2AndHTTP1PlainAndOverTLS(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, echo("hello"))
	_, port, _ := net.SplitHostPort(w.addr)
	host := name(id, 80)
	for _, c := range [][3]string{{"https", "--http2", "2"}, {"https", "--http1.1", "1.1"}, {"http", "--http2-prior-knowledge", "2"}, {"http", "--http1.1", "1.1"}} {
		flag, want := c[1], c[2]
		cmd := exec.Command("curl", "-sS", flag, "--cacert", w.ca.Path(), "--resolve", host+":"+port+":127.0.0.1", "-w", "|%{http_version}", c[0]+"://"+host+":"+port+"/x")
		cmd.Env = os.Environ()
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "hello /x") || !strings.HasSuffix(string(out), "|"+want) {
			t.Errorf("%s: %q (%v)", flag, out, err)
		}
	}
}

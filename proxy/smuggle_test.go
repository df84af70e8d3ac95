package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// raw sends bytes over a connection of their own and returns the answers, until the
// proxy closes it: the last request says so, or cannot be read.
func (w *world) raw(text string) (answers []int) {
	w.t.Helper()
	c := w.dialPlain()
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, text)
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return answers
		}
		io.Copy(io.Discard, resp.Body)
		answers = append(answers, resp.StatusCode)
	}
}

func TestSmuggledRequestsAreRefused(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	var reached atomic.Int32
	w.serve(id, 1, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		io.Copy(io.Discard, r.Body)
	}))
	host := "Host: " + name(id, 80) + "\r\n"
	behind := "GET /smuggled HTTP/1.1\r\n" + host + "\r\n"
	for what, raw := range map[string]string{
		"two lengths":            "POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
		"lengths in a list":      "POST / HTTP/1.1\r\n" + host + "Content-Length: 3, 5\r\n\r\nabcde",
		"signed length":          "POST / HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc",
		"negative length":        "POST / HTTP/1.1\r\n" + host + "Content-Length: -3\r\n\r\nabc",
		"length in hex":          "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x3\r\n\r\nabc",
		"space before the colon": "POST / HTTP/1.1\r\n" + host + "Content-Length : 3\r\n\r\nabc",
		"space before a header":  "POST / HTTP/1.1\r\n Content-Length: 3\r\n" + host + "\r\nabc",
		"unknown coding":         "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + behind,
		"two codings":            "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + behind,
		"codings in a list":      "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + behind,
		"tab in a coding":        "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + behind,
		"NUL in a header":        "GET / HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n",
		"CR in a header":         "GET / HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n",
		"two hosts":              "GET / HTTP/1.1\r\n" + host + "Host: other\r\n\r\n",
		"no host":                "GET / HTTP/1.1\r\n\r\n",
		"another version":        "GET / HTTP/3.7\r\n" + host + "\r\n",
		"absolute, other host":   "GET http://example.com/ HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
	} {
		if got := w.raw(raw); len(got) != 1 || got[0] < 400 {
			t.Errorf("%s: got %v, want one refusal", what, got)
		}
		if n := reached.Swap(0); n != 0 {
			t.Errorf("%s: it reached the guest %d times", what, n)
		}
	}
	// A bad chunk is found when the request is under way already. What follows it is no
	// request.
	reached.Store(0)
	if got := w.raw("POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + behind); fmt.Sprint(got) != "[400]" || reached.Load() > 1 {
		t.Errorf("bad chunk: got %v, want one refusal; the guest saw %d requests", got, reached.Load())
	}
	if got := w.raw("GET / HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n"); len(got) != 1 || got[0] != 200 {
		t.Errorf("a request that is right: got %v", got)
	}
}

// TestWhatTheGuestGetsIsUnambiguous: where net/http accepts two ways to say how long
// a body is, or a header over two lines, the guest sees one.
func TestWhatTheGuestGetsIsUnambiguous(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	seen := make(chan *http.Request, 9)
	w.serve(id, 1, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Header.Set("Body", string(b))
		seen <- r
	}))
	head := "POST / HTTP/1.1\r\nHost: " + name(id, 80) + "\r\nConnection: close\r\n"
	for what, c := range map[string]struct{ raw, body, folded string }{
		"coding and length":  {head + "Content-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc", ""},
		"equal lengths":      {head + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "abc", ""},
		"header folded":      {head + "Content-Length: 3\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\nabc", "abc", "a Transfer-Encoding: chunked"},
		"folded and chunked": {head + "Transfer-Encoding:\r\n chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc", ""},
	} {
		if got := w.raw(c.raw); len(got) != 1 || got[0] != 200 {
			t.Errorf("%s: got %v", what, got)
			continue
		}
		r := <-seen
		both := r.Header.Get("Content-Length") != "" && len(r.TransferEncoding) > 0
		if r.Header.Get("Body") != c.body || r.Header.Get("X") != c.folded || both {
			t.Errorf("%s: the guest saw body %q, X %q, lengths %v %v", what, r.Header.Get("Body"), r.Header.Get("X"), r.ContentLength, r.TransferEncoding)
		}
	}
}

// TestWhatFollowsARequestIsCheckedAsOne: requests behind each other go each to where
// it says itself.
func TestWhatFollowsARequestIsCheckedAsOne(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox(), w.sandbox()
	w.serve(a, 1, envdPort, echo("a"))
	w.serve(b, 1, 80, echo("b"))
	got := w.raw("GET / HTTP/1.1\r\nHost: " + name(a, envdPort) + "\r\n\r\nPOST /init HTTP/1.1\r\nHost: " + name(a, envdPort) + "\r\nContent-Length: 0\r\n\r\n" +
		"GET / HTTP/1.1\r\nHost: " + name(b, 80) + "\r\nConnection: close\r\n\r\n")
	if fmt.Sprint(got) != "[200 404 200]" {
		t.Errorf("got %v", got)
	}
}

// TestTheRestOfAnUploadIsNeverTakenForARequest: a guest that answers before it has all,
// while the client has more to send.
func TestTheRestOfAnUploadIsNeverTakenForARequest(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, length := range []string{"Content-Length: 100000", "Transfer-Encoding: chunked"} {
			w := newWorld(t)
			id := w.sandbox()
			w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				http.NewResponseController(rw).EnableFullDuplex()
				rw.Header().Set("Connection", "close")
				rw.WriteHeader(http.StatusRequestEntityTooLarge)
				io.WriteString(rw, "too large")
			}))
			c := w.dialPlain()
			if secure {
				c = w.secure(name(id, 80), "http/1.1")
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n5\r\nhello\r\n", name(id, 80), length)
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			if err == nil && !resp.Close {
				t.Errorf("%s: the answer does not say that it is the last one", length)
			}
			if err != nil {
				t.Fatalf("%s: the answer did not come: %v", length, err)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "too large" {
				t.Errorf("%s: got %q (%v)", length, b, err)
			}
			fmt.Fprint(c, "GET /not-a-request HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp, err := http.ReadResponse(br, nil); err == nil {
				t.Errorf("%s, TLS %v: the rest of the body was answered: %d", length, secure, resp.StatusCode)
			}
		}
	}
}

// TestNoUpgradeGetsAroundTheChecks: after one, nobody reads what passes.
func TestNoUpgradeGetsAroundTheChecks(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	got := make(chan string, 1)
	tell := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Upgrade") + r.Header.Get("Connection") + r.Header.Get("Http2-Settings")
	})
	w.serve(id, 1, 80, tell)
	w.serve(id, 1, envdPort, tell)
	for what, c := range map[string]struct {
		port    int
		upgrade string
		want    string
	}{
		"HTTP/2":           {80, "h2c", ""},
		"HTTP/2, shouted":  {80, "H2C", ""},
		"HTTP/2 in a list": {80, "websocket, h2c", ""},
		"any of envd":      {envdPort, "websocket", ""},
		"any other":        {80, "websocket", "websocketUpgrade"},
	} {
		io.WriteString(w.dialPlain(), "GET / HTTP/1.1\r\nHost: "+name(id, c.port)+"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+c.upgrade+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		if seen := <-got; seen != c.want {
			t.Errorf("%s: the guest saw %q, want %q", what, seen, c.want)
		}
	}
}

func TestCONNECTIsRefused(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, echo("reached"))
	for _, host := range []string{name(id, 80) + ":80", "example.com:443"} {
		if got := w.raw("CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); len(got) != 1 || got[0] != 405 {
			t.Errorf("%s: got %v, want 405", host, got)
		}
	}
}

func TestHeadersWithoutEndAreRefused(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, echo("reached"))
	got := w.raw("GET / HTTP/1.1\r\nHost: " + name(id, 80) + "\r\nX: " + strings.Repeat("x", maxHeader+8192) + "\r\n\r\n")
	if len(got) != 1 || got[0] != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %v, want 431", got)
	}
}

package agentclient

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

const (
	head  = "HTTP/1.1 200 OK\r\n"
	plain = head + "Content-Type: application/json\r\nConnection: close\r\n\r\n"
)

// says is an agent that answers one text and hangs up.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c) // else the end would be a reset, which overtakes the text
	}
}

// goesOn is an agent that says one text after another, for ever.
func goesOn(first, then string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, first)
		b := []byte(strings.Repeat(then, 1+4096/len(then)))
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// drips is an agent that says a byte at a time, for ever.
func drips(first string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, first)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := c.Write([]byte(" ")); err != nil {
				return
			}
		}
	}
}

// holds is an agent that says something and keeps the connection.
func holds(text string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, text)
		io.Copy(io.Discard, c)
	}
}

// hostile are agents that answer as none should.
var hostile = map[string]func(net.Conn){
	"nothing":                 holds(""),
	"the end":                 says(""),
	"half a status":           says("HTTP/1.1 2"),
	"half a head":             says(head + "Content-Le"),
	"no HTTP":                 says("\x00\x01\x02\xff\x1b[2J\r\n\r\n"),
	"another HTTP":            says("HTTP/1.x 200 OK\r\n\r\n{}"),
	"an odd status":           says("HTTP/1.1 -200 OK\r\n\r\n{}"),
	"a huge status":           says("HTTP/1.1 99999999999999999999 OK\r\n\r\n{}"),
	"an endless status":       goesOn("HTTP/1.1 200 ", "\x1b]0;x\x07"),
	"a head without end":      goesOn(head+"X: ", "x"),
	"heads without end":       goesOn(head, "X: y\r\n"),
	"to be continued, always": goesOn("", "HTTP/1.1 100 Continue\r\n\r\n"),
	"early hints, always":     goesOn("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
	"a switch of protocols":   holds("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"),
	"a redirect":              says("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"),
	"a long complaint":        goesOn("HTTP/1.1 500 \x1b[31m\r\n\r\n", "\x1b[2J\u202e\n"),
	"two lengths":             says(head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
	"a length below zero":     says(head + "Content-Length: -1\r\n\r\n{}"),
	"a huge length":           holds(head + "Content-Length: 9223372036854775807\r\n\r\n{"),
	"a body without end":      goesOn(plain, " "),
	"a body of text":          goesOn(plain+`{"agent":"`, "x"),
	"a body that drips":       drips(plain),
	"a head that drips":       drips(head),
	"pieces without end":      goesOn(head+"Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"),
	"a piece below zero":      says(head + "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
	"a huge piece":            holds(head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx"),
	"trailers without end":    goesOn(head+"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n", "X: y\r\n"),
	"no JSON":                 says(plain + "<html>\x1b[2J\x00"),
	"text for a number":       says(plain + `{"version":"1","lastEvent":"x","generation":"x","entries":[],"number":{}}`),
	"a huge number":           says(plain + `{"version":1` + strings.Repeat("0", 5000) + `,"lastEvent":1e999999999,"generation":1e999,"entries":1e99,"number":1e99}`),
	"below zero":              says(plain + `{"version":-1,"lastEvent":-1,"generation":-1,"entries":1.5,"number":-1}`),
	"too deep":                says(plain + strings.Repeat(`{"version":[`, 3000)),
	"a list":                  says(plain + strings.Repeat("[", 30000) + strings.Repeat("]", 30000)),
	"no UTF-8":                says(plain + "{\"version\": \xff\xfe\x00}"),
	"bytes of packed text":    says(head + "Content-Type: application/proto\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00garbage"),
	"a frame of 4 GiB":        holds(framed(0, 1<<32-1, "x")),
	"frames without end":      goesOn(framed(0, 0, ""), string(make([]byte, 5))),
	"a frame of garbage":      says(framed(0, 4, "\xff\xff\xff\xff")),
	"a packed frame":          says(framed(1, 4, "\x1f\x8b\x08\x00")),
	"an end of garbage":       says(framed(2, 4, "\x00{\x1b}")),
	"a long end":              says(framed(2, 3<<20, `{"error":{"code":"`+strings.Repeat("x", 3<<20-40)+`","message":"y"}}`)),
}

// framed is an answer of envd's RPC with one frame.
func framed(flags byte, size uint32, text string) string {
	return head + "Content-Type: application/connect+proto\r\nConnection: close\r\n\r\n" +
		string(binary.BigEndian.AppendUint32([]byte{flags}, size)) + text
}

// calls are all that the server asks an agent for.
var calls = map[string]func(ctx context.Context, dial Dialer) error{
	"configure": func(ctx context.Context, dial Dialer) error {
		_, err := SendConfigure(ctx, dial, agentapi.Configure{Version: 1})
		return err
	},
	"status":  func(ctx context.Context, dial Dialer) error { _, err := GetStatus(ctx, dial); return err },
	"quiesce": Quiesce,
	"events": func(ctx context.Context, dial Dialer) error {
		return FollowEvents(ctx, dial, 0, func(agentapi.Event) {})
	},
	"dial": func(ctx context.Context, dial Dialer) error {
		c, err := DialLocal(ctx, dial, 80)
		if err == nil {
			c.Close()
		}
		return err
	},
	"files": func(ctx context.Context, dial Dialer) error {
		_, err := SendFiles(ctx, dial, strings.NewReader(strings.Repeat("x", 1<<20)))
		return err
	},
	"run": func(ctx context.Context, dial Dialer) error {
		c := New(dial, "")
		defer c.Close()
		_, err := c.Run(ctx, "true", nil, RunOptions{})
		return err
	},
	"read": func(ctx context.Context, dial Dialer) error {
		c := New(dial, "")
		defer c.Close()
		_, err := c.ReadFile(ctx, "", "x", 1<<20)
		return err
	},
	"write": func(ctx context.Context, dial Dialer) error {
		c := New(dial, "")
		defer c.Close()
		return c.WriteFile(ctx, "", "x", []byte("x"))
	},
}

// content are answers that are right for a call whose answer has no form: any bytes are a
// file, and of some nothing is wanted but that they succeed.
var content = map[string]bool{"read": true, "write": true, "quiesce": true, "events": true}

func TestNoAnswerOfAnAgentHoldsTheServerOrFillsItsMemoryOrItsLog(t *testing.T) {
	const most = 100 * time.Millisecond // as the caller says
	for call, do := range calls {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			failed := 0
			for name, agent := range hostile {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				ctx, cancel := context.WithTimeout(t.Context(), most)
				began := time.Now()
				err := do(ctx, listening(t, agent))
				took := time.Since(began)
				cancel()
				runtime.ReadMemStats(&after)
				if took > most+10*time.Second {
					t.Errorf("%s: it took %v", name, took)
				}
				if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 64<<20 {
					t.Errorf("%s: %d MiB of memory are in use for it", name, grown>>20)
				}
				if err == nil && !content[call] {
					t.Errorf("%s: it is no error", name)
				}
				if err != nil {
					failed++
					fit(t, name, err)
				}
			}
			if failed < len(hostile)/4 {
				t.Errorf("%d of %d have failed: the agents were not hostile", failed, len(hostile))
			}
		})
	}
}

// fit looks whether an error can be shown and logged.
func fit(t *testing.T, name string, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 2*maxText {
		t.Errorf("%s: the error has %d bytes: %.200s", name, len(text), text)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		t.Errorf("%s: the error is no harmless line: %q", name, text)
	}
}

// listening is an agent that does this with each connection, once a request has begun.
func listening(t *testing.T, does func(net.Conn)) Dialer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := bufio.NewReaderSize(c, 16).ReadByte(); err == nil {
					does(c)
				}
			}()
		}
	}()
	return func(ctx context.Context, _ uint16) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	}
}

func TestAnAgentThatNamesNoVersionIsNotConfigured(t *testing.T) {
	for _, text := range []string{"{}", "null", `{"version":0}`, `{"version":-3,"agent":"x"}`} {
		_, err := SendConfigure(t.Context(), listening(t, says(plain+text)), agentapi.Configure{})
		if !errors.Is(err, cube.ErrAgent) {
			t.Errorf("%s: got %v, want that the agent failed", text, err)
		}
	}
	got, err := SendConfigure(t.Context(), listening(t, says(plain+`{"version":1,"agent":"0.1","lastEvent":7,"more":[]}`)), agentapi.Configure{})
	if err != nil || got.Version != 1 || got.LastEvent != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestEventsAreReadAsFastAsTheyAreTaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	taken := 0
	err := FollowEvents(ctx, listening(t, goesOn(plain, `{"number":1,"kind":"oom","detail":"x"}`+"\n")), 0, func(e agentapi.Event) {
		if e.Kind != "oom" {
			t.Errorf("got %+v", e)
		}
		if taken++; taken == 1000 {
			cancel()
		}
	})
	if err == nil || taken < 1000 || taken > 5000 { // some were read with the last
		t.Errorf("%d events were taken, %v; want that it ends soon after the thousandth", taken, err)
	}
}

func TestAnErrorKeepsWhatItWraps(t *testing.T) {
	long := brief(fmt.Errorf("%w: %s\x1b", cube.ErrAgent, strings.Repeat("é", 4000)))
	if !errors.Is(long, cube.ErrAgent) || len(long.Error()) > maxText+10 {
		t.Errorf("got %d bytes: %v", len(long.Error()), long)
	}
	if err := brief(cube.ErrRefused); err != cube.ErrRefused {
		t.Errorf("one that is short is another: %v", err)
	}
	if brief(nil) != nil {
		t.Error("no error is one")
	}
}

// scripted is a connection whose other side says this and ends.
type scripted struct {
	net.Conn
	r io.Reader
}

func (s scripted) Read(b []byte) (int, error)       { return s.r.Read(b) }
func (s scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (s scripted) Close() error                     { return nil }
func (s scripted) SetDeadline(time.Time) error      { return nil }
func (s scripted) SetReadDeadline(time.Time) error  { return nil }
func (s scripted) SetWriteDeadline(time.Time) error { return nil }

func FuzzAnswers(f *testing.F) {
	for _, text := range []string{
		plain + `{"version":1}`, plain + `{"number":1,"kind":"oom"}` + "\n" + `{"number":2}`, "HTTP/1.1 502 Bad Gateway\r\n\r\nno",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: cube-dial\r\n\r\nahead", framed(2, 2, "{}"),
		head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n" + plain,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dial := func(context.Context, uint16) (net.Conn, error) { return scripted{r: strings.NewReader(string(b))}, nil }
		for name, do := range calls {
			if name == "run" || name == "read" || name == "write" {
				continue // of net/http and connect, which keep goroutines for each
			}
			if err := do(t.Context(), dial); err != nil {
				fit(t, name, err)
			}
		}
		if c, err := DialLocal(t.Context(), dial, 80); err == nil {
			if rest, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), string(rest)) {
				t.Errorf("the stream is %q (%v), which %q does not end with", rest, err, b)
			}
		}
	})
}

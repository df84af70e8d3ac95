package life

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"cubesandbox/guest/agentapi"
	"cubesandbox/network/api"
	"cubesandbox/network/networktest"
)

// agent serves the agent's control port with answer until the test ends.
func agent(t *testing.T, g *networktest.Guest, answer func(net.Conn)) {
	t.Helper()
	ln := g.Listen(t, agentapi.ControlPort, false).(*gonet.TCPListener)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); answer(c) })
		}
	})
	t.Cleanup(func() { ln.Shutdown(); ln.Close(); wg.Wait() })
}

// honest is what the guest agent does, for the one port that it knows.
func honest(open string) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil || req.Method != "POST" || req.URL.Path != "/v1/dial" || req.Header.Get("Upgrade") != "cube-dial" {
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			return
		}
		if req.URL.Query().Get("port") != open {
			fmt.Fprint(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\nclosed")
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: cube-dial\r\n\r\nhello ")
		io.Copy(c, r)
	}
}

func TestAgentIsAskedWhenThePortIsClosedFromOutside(t *testing.T) {
	for _, via := range []api.Via{"", api.ViaAuto, api.ViaAgent} {
		l, g := plugged(t)
		agent(t, g, honest("8000"))
		c, err := tryDial(l, Target{Port: 8000, Via: via}, 5*time.Second)
		if err != nil {
			t.Fatalf("via %q: %v", via, err)
		}
		fmt.Fprint(c, "world")
		c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "hello world" || err != nil {
			t.Errorf("via %q: got %q, %v", via, b, err)
		}
		c.Close()
	}
}

func TestClosedEverywhereIsRefused(t *testing.T) {
	l, g := plugged(t)
	if _, err := tryDial(l, Target{Port: 81}, 5*time.Second); !errors.Is(err, ErrRefused) {
		t.Errorf("no agent: got %v, want ErrRefused", err)
	}
	agent(t, g, honest("8000"))
	if _, err := tryDial(l, Target{Port: 81}, 5*time.Second); !errors.Is(err, ErrRefused) {
		t.Errorf("agent says no: got %v, want ErrRefused", err)
	}
	if _, err := tryDial(l, Target{Port: 8000, Via: api.ViaDirect}, 5*time.Second); !errors.Is(err, ErrRefused) {
		t.Errorf("via direct: got %v, want ErrRefused", err)
	}
}

func TestHostileAgentCostsATimeoutAtMost(t *testing.T) {
	stay := func(c net.Conn) { io.Copy(io.Discard, c) }
	for name, h := range map[string]struct {
		answer func(net.Conn)
		want   error
	}{
		"hangs up":           {func(net.Conn) {}, ErrAgent},
		"says nothing":       {stay, ErrTimeout},
		"never ends a line":  {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 101 "); stay(c) }, ErrTimeout},
		"hangs up half-way":  {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 101 OK\r\n") }, ErrAgent},
		"endless head":       {func(c net.Conn) { c.Write(bytes.Repeat([]byte("X: y\r\n"), 1<<16)); stay(c) }, ErrAgent},
		"another status":     {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n"); stay(c) }, ErrAgent},
		"a longer status":    {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 1010\r\n\r\n"); stay(c) }, ErrAgent},
		"not HTTP":           {func(c net.Conn) { fmt.Fprint(c, strings.Repeat("\x00\r\n\r\n", 5)); stay(c) }, ErrAgent},
		"another version":    {func(c net.Conn) { fmt.Fprint(c, "HTTP/9.9 101 OK\r\n\r\n"); stay(c) }, ErrAgent},
		"refuses at length":  {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 502 no\r\n\r\n"+strings.Repeat("x", 1<<20)); stay(c) }, ErrRefused},
		"empty lines for it": {func(c net.Conn) { fmt.Fprint(c, "\r\n\r\n"); stay(c) }, ErrAgent},
	} {
		t.Run(name, func(t *testing.T) {
			l, g := plugged(t)
			agent(t, g, h.answer)
			start := time.Now()
			if _, err := tryDial(l, Target{Port: 8000, Via: api.ViaAgent}, 300*time.Millisecond); !errors.Is(err, h.want) {
				t.Errorf("got %v, want %v", err, h.want)
			}
			if d := time.Since(start); d > 3*time.Second {
				t.Errorf("took %v", d)
			}
			if s := l.Stats(); s.Connections != 0 {
				t.Errorf("%d connections are left", s.Connections)
			}
		})
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: cube-dial\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 502\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		err := status(head)
		if ok := bytes.HasPrefix(head, []byte("HTTP/1.1 101")); err == nil && !ok {
			t.Errorf("%q was taken for a yes", head)
		}
		if err != nil && len(err.Error()) > 512 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

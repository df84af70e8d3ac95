package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answering has a port of a sandbox answer each connection by what does, which gets it when
// the head of a request was read. over gets a message when a connection has ended.
func (w *world) answering(port int, does func(c net.Conn)) (host string, over chan error) {
	w.t.Helper()
	id := w.sandbox()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	w.at(id, 1, port, ln.Addr().String())
	over = make(chan error, 100)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				does(c)
				_, err := io.Copy(io.Discard, r)
				over <- err
			}()
		}
	}()
	return name(id, port), over
}

func text(s string) func(net.Conn) { return func(c net.Conn) { io.WriteString(c, s) } }

// TestASwitchOfProtocolsThatNobodyAskedForIsRefusedAndItsConnectionEnded: envd may switch to
// nothing, as it is asked for nothing; another port only to what it was asked for.
func TestASwitchOfProtocolsThatNobodyAskedForIsRefusedAndItsConnectionEnded(t *testing.T) {
	const upgrade = "Connection: Upgrade\r\nUpgrade: "
	for what, c := range map[string]struct {
		answer string
		asked  bool // for, by one who asks for a websocket
	}{
		"to something":           {answer: upgrade + "cube-dial"},
		"to nothing":             {answer: "X: y"},
		"to a websocket":         {answer: upgrade + "websocket", asked: true},
		"to a longer one":        {answer: upgrade + "websocket2"},
		"to what folds to it":    {answer: upgrade + "web\u017focket"},
		"to what cannot be read": {answer: upgrade + "websocket\xff"},
		"without saying so":      {answer: "Upgrade: websocket"},
		"saying another thing":   {answer: "Connection: xupgrade\r\nUpgrade: websocket"},
		"saying that it is none": {answer: "Connection: keep-alive, no-upgrade\r\nUpgrade: websocket"},
	} {
		for _, port := range []int{envdPort, 80} {
			for _, headers := range [][]string{nil, {"Connection", "Upgrade", "Upgrade", "websocket"}} {
				if c.asked && port == 80 && headers != nil {
					continue
				}
				t.Run(fmt.Sprint(what, " at ", port, " where ", headers), func(t *testing.T) {
					w := newWorld(t)
					host, over := w.answering(port, text("HTTP/1.1 101 Switching Protocols\r\n"+c.answer+"\r\n\r\n"))
					if code, body, _ := w.get(host, "/health", headers...); code != http.StatusBadGateway {
						t.Errorf("got %d %s, want 502", code, body)
					}
					select {
					case <-over:
					case <-time.After(10 * time.Second):
						t.Fatal("its connection stays open")
					}
				})
			}
		}
	}
}

// TestASwitchToWhatWasAskedForIsTakenInAnyCase: names of protocols, and the token that says
// that there is one, are words of ASCII.
func TestASwitchToWhatWasAskedForIsTakenInAnyCase(t *testing.T) {
	w := newWorld(t)
	host, over := w.answering(80, text("HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive,\tUPGRADE\r\nUpgrade: WebSocket\r\n\r\n"))
	c := w.dialPlain()
	w.upgrade(c, host, "websocket")
	c.Close()
	<-over
}

func TestAnswersThatAreNoneEndInAnError(t *testing.T) {
	for name, does := range map[string]func(net.Conn){
		"garbage":               text("\x00\xff\x1b[2J\r\n\r\n"),
		"an odd status":         text("HTTP/1.1 -5 No\r\n\r\n"),
		"two lengths":           text("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
		"a length below zero":   text("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nxx"),
		"a head without end":    forever("HTTP/1.1 200 OK\r\nX: ", "x"),
		"heads without end":     forever("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
		"continued without end": forever("", "HTTP/1.1 100 Continue\r\nX: "+strings.Repeat("x", 4000)+"\r\n\r\n"),
		"hints without end":     forever("", "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 4000)+"\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			host, over := w.answering(envdPort, func(c net.Conn) { does(c); c.Close() })
			resp, err := client1.Do(w.request(http.MethodGet, host, "/health", nil))
			if err == nil { // hints reach the client, who is the first to have enough of them
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusBadGateway {
					t.Errorf("got %s, want 502", resp.Status)
				}
			} else if !strings.Contains(err.Error(), "1xx") && !strings.Contains(err.Error(), "exceeded") {
				t.Errorf("got %v", err)
			}
			select {
			case <-over:
			case <-time.After(10 * time.Second):
				t.Fatal("its connection stays open")
			}
			if log := w.log.String(); len(log) > 100<<10 || strings.Contains(log, "\x1b") {
				t.Errorf("%d bytes were logged: %.500q", len(log), log)
			}
		})
	}
}

// forever says one text after another until the connection ends.
func forever(first, then string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, first)
		b := []byte(strings.Repeat(then, 1000))
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

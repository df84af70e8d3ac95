package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// agreeing is a server that grants each upgrade to a protocol.
func agreeing(protocol string, speak func(c net.Conn, buf *bufio.ReadWriter)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", protocol)
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		speak(c, buf)
	})
}

// upgrading answers an upgrade to a protocol, and then says the pieces, as they come.
// Without them it says what it hears.
func upgrading(protocol string, pieces <-chan []byte) http.Handler {
	return agreeing(protocol, func(c net.Conn, buf *bufio.ReadWriter) {
		if pieces == nil {
			io.Copy(c, buf)
			return
		}
		for b := range pieces {
			c.Write(b)
		}
		io.Copy(io.Discard, buf)
	})
}

// upgrade asks for one over a connection.
func (w *world) upgrade(c net.Conn, host, protocol string) *bufio.Reader {
	w.t.Helper()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", host, protocol)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("%v (%v)", resp, err)
	}
	return r
}

// TestAtAStopAWebSocketGetsACloseFrame: between two frames, with the code of a server
// that will be back. What the client answers reaches the server inside.
func TestAtAStopAWebSocketGetsACloseFrame(t *testing.T) {
	if closeFrame[0] != 0x88 || int(closeFrame[1]) != len(closeFrame)-2 || binary.BigEndian.Uint16(closeFrame[2:]) != 1012 {
		t.Fatalf("the close frame is % x", closeFrame)
	}
	hello := append([]byte{0x81, 5}, "hello"...)
	long := append([]byte{0x82, 126, 0x40, 0}, make([]byte, 0x4000)...)
	for what, pieces := range map[string][][]byte{
		"of none":           {},
		"after a frame":     {hello},
		"after two in one":  {append(hello, long...)},
		"after a long one":  {long[:1], long[1:3], long[3:100], long[100:]},
		"within a fragment": {append([]byte{0x01, 5}, "hello"...)},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(what, ", TLS ", secure), func(t *testing.T) {
				w := newWorld(t)
				id := w.sandbox()
				heard := make(chan []byte, 1)
				w.serve(id, 1, 80, listening(pieces, heard))
				c := w.dialPlain()
				if secure {
					c = w.secure(name(id, 80), "http/1.1")
				}
				r := w.upgrade(c, name(id, 80), "WebSocket")
				if _, err := io.ReadFull(r, make([]byte, len(bytes.Join(pieces, nil)))); err != nil {
					t.Fatal(err)
				}
				down := w.shutdown()
				got := make([]byte, len(closeFrame))
				if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, closeFrame) {
					t.Fatalf("got % x (%v), want % x", got, err, closeFrame)
				}
				if _, err := r.ReadByte(); err != io.EOF {
					t.Errorf("behind it: %v, want the end", err)
				}
				answer := []byte{0x88, 0x82, 0, 0, 0, 0, 3, 0xf4}
				if _, err := c.Write(answer); err != nil {
					t.Error(err)
				}
				c.Close()
				if b := <-heard; !bytes.Equal(b, answer) {
					t.Errorf("the server inside has heard % x, want % x", b, answer)
				}
				if err := <-down; err != nil {
					t.Errorf("the stop: %v", err)
				}
			})
		}
	}
}

// listening says the pieces, and gives what it hears up to the end.
func listening(pieces [][]byte, heard chan<- []byte) http.Handler {
	return agreeing("WebSocket", func(c net.Conn, buf *bufio.ReadWriter) {
		for _, b := range pieces {
			c.Write(b)
		}
		b, _ := io.ReadAll(buf) // it may be cut behind what counts
		heard <- b
	})
}

// TestGoodbyeIsSaidBetweenFrames: behind the one that is under way and before the next,
// of which nothing is passed on, nor of what comes behind it.
func TestGoodbyeIsSaidBetweenFrames(t *testing.T) {
	hello := append([]byte{0x81, 5}, "hello"...)
	ours, theirs := net.Pipe()
	u := newUpgraded(ours, &recorder{request: &http.Request{Header: http.Header{"Upgrade": {"websocket"}}}, end: &ending{}}, nil)
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(theirs)
		got <- b
	}()
	write := func(b []byte) {
		if n, err := u.Write(b); n != len(b) || err != nil {
			t.Errorf("wrote %d of %d bytes (%v)", n, len(b), err)
		}
	}
	write(hello[:3])
	u.leaving = true
	write(hello[3:5])
	write(append(hello[5:len(hello):len(hello)], hello[:4]...))
	write(hello[4:])
	ours.Close()
	if want, b := append(hello, closeFrame...), <-got; !bytes.Equal(b, want) {
		t.Errorf("got % x, want % x", b, want)
	}
}

func TestAtAStopAFrameThatIsUnderWayIsCompletedOrCut(t *testing.T) {
	hello := append([]byte{0x81, 5}, "hello"...)
	for what, rest := range map[string][]byte{"completed": hello[4:], "cut": nil} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			id := w.sandbox()
			pieces := make(chan []byte, 1)
			defer close(pieces)
			w.serve(id, 1, 80, upgrading("websocket", pieces))
			c := w.dialPlain()
			r := w.upgrade(c, name(id, 80), "websocket")
			pieces <- hello[:4]
			if _, err := io.ReadFull(r, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			down := w.shutdown()
			<-w.p.stopping.Done()
			if rest == nil {
				if _, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %v, want a reset", err)
				}
			} else {
				pieces <- rest
				want := append(append([]byte{}, hello[4:]...), closeFrame...)
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got % x (%v), want % x", got, err, want)
				}
				c.Close()
			}
			if err := <-down; err != nil {
				t.Errorf("the stop: %v", err)
			}
		})
	}
}

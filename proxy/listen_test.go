package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
)

// TestClientsThatSayNothingHoldUpNobodyAndAreLetGo: before the first byte, within the
// headers, and in the handshake of TLS.
func TestClientsThatSayNothingHoldUpNobodyAndAreLetGo(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.patience, p.server.ReadHeaderTimeout = 200*time.Millisecond, 200*time.Millisecond })
	id := w.sandbox()
	w.serve(id, 1, 80, echo("served"))
	slow := map[string]net.Conn{}
	for what, said := range map[string]string{"nothing": "", "half a line": "GET / HT", "half the headers": "GET / HTTP/1.1\r\nHost: x\r\n", "half a hello": "\x16\x03\x01\x02\x00\x01"} {
		c := w.dialPlain()
		io.WriteString(c, said)
		slow[what] = c
	}
	if status, _, _ := w.get(name(id, 80), "/"); status != 200 {
		t.Errorf("a client behind them: got %d", status)
	}
	for what, c := range slow {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if b, err := io.ReadAll(c); errors.Is(err, syscall.EAGAIN) || isTimeout(err) || strings.Contains(string(b), " 200 ") {
			t.Errorf("%s: got %q (%v), want to be let go", what, b, err)
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestARequestTakesAsLongAsItTakes: the limits on headers are none on what follows.
func TestARequestTakesAsLongAsItTakes(t *testing.T) {
	w := newWorld(t, func(p *Proxy) {
		p.patience, p.server.ReadHeaderTimeout = 50*time.Millisecond, 50*time.Millisecond
	})
	if s := w.p.server; s.ReadTimeout != 0 || s.WriteTimeout != 0 || s.IdleTimeout <= 300*time.Second {
		t.Errorf("time limits: read %s, write %s, idle %s", s.ReadTimeout, s.WriteTimeout, s.IdleTimeout)
	}
	id := w.sandbox()
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		<-time.After(200 * time.Millisecond)
		io.WriteString(rw, "late")
	}))
	if status, body, _ := w.get(name(id, 80), "/"); status != 200 || body != "late" {
		t.Errorf("got %d %q", status, body)
	}
}

// failing is a listener that cannot accept for a while.
type failing struct {
	net.Listener
	left atomic.Int32
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestACrowdThatTakesAllDescriptorsDoesNotEndTheProxy(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, echo("served"))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{Listener: ln}
	f.left.Store(3)
	served := make(chan error, 1)
	go func() { served <- w.p.Serve(f) }()
	w.addr = ln.Addr().String()
	if status, _, _ := w.get(name(id, 80), "/"); status != 200 {
		t.Errorf("got %d", status)
	}
	// What does not pass is said.
	ln.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}

func TestTLSWithoutACertificateIsRefusedAndOtherwiseOffersHTTP2(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.tls = nil })
	if _, err := tls.Dial("tcp", w.addr, &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("a handshake without a certificate")
	}
	p, err := New(Config{Sandboxes: w, Domain: domain, TLS: &tls.Config{}})
	if err != nil || len(p.tls.NextProtos) == 0 || p.tls.NextProtos[0] != "h2" {
		t.Errorf("got %v (%v)", p, err)
	}
	if _, err := New(Config{Sandboxes: w, Domain: ":3002"}); !errors.Is(err, cube.ErrInvalid) {
		t.Errorf("a domain without a name: %v", err)
	}
}

// onSocket serves one request, and calls look with the descriptor of its connection.
func onSocket(t *testing.T, look func(fd int) error) {
	t.Helper()
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, echo("served"))
	looked := make(chan error, 1)
	w.p.server.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		raw, err := clientOf(r).Conn.(*net.TCPConn).SyscallConn()
		if err == nil {
			var inside error
			err = raw.Control(func(fd uintptr) { inside = look(int(fd)) })
			err = errors.Join(err, inside)
		}
		looked <- err
		w.p.ServeHTTP(rw, r)
	})
	if status, _, _ := w.get(name(id, 80), "/"); status != 200 {
		t.Errorf("got %d", status)
	}
	if err := <-looked; err != nil {
		t.Error(err)
	}
}

// TestDeadClientsAreFound: by TCP's keep-alive, since nothing bounds a request.
func TestDeadClientsAreFound(t *testing.T) {
	onSocket(t, func(fd int) error {
		n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		if err == nil && n != 1 {
			err = errors.New("keep-alive is off")
		}
		return err
	})
}

// TestWhereTheProxyIsKilledItsConnectionsAreReset: the kernel is told so before anything
// else, for a process that is killed can say nothing any more.
func TestWhereTheProxyIsKilledItsConnectionsAreReset(t *testing.T) {
	onSocket(t, func(fd int) error {
		l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
		if err == nil && (l.Onoff != 1 || l.Linger != 0) {
			err = fmt.Errorf("SO_LINGER is %+v, want on, 0 s", *l)
		}
		return err
	})
}

func TestOneConnectionIsPlainAndTheNextTLSOnTheSamePort(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	seen := make(chan string, 1)
	w.serve(id, 1, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("X-Forwarded-Proto") }))
	for range 2 {
		for want, c := range map[string]net.Conn{"http": w.dialPlain(), "https": w.secure(name(id, 80), "http/1.1")} {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+name(id, 80)+"\r\n\r\n")
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
				t.Fatalf("%s: %v (%v)", want, resp, err)
			}
			if got := <-seen; got != want {
				t.Errorf("the guest hears %q, want %q", got, want)
			}
		}
	}
}

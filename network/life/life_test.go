package life

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"cubesandbox/guest/agentapi"
	"cubesandbox/network/api"
	"cubesandbox/network/networktest"
)

func plugged(t testing.TB) (*Life, *networktest.Guest) {
	t.Helper()
	g, nic := networktest.NewGuest(t)
	l, err := Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, g
}

func dial(t testing.TB, l *Life, port uint16) *net.UnixConn {
	t.Helper()
	c, err := tryDial(l, Target{Port: port, Via: api.ViaDirect}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func tryDial(l *Life, target Target, timeout time.Duration) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	f, err := l.Dial(ctx, target)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// accept accepts one connection, in the background, and closes the listener.
func accept(t testing.TB, ln net.Listener) func() *gonet.TCPConn {
	got := make(chan net.Conn, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer ln.Close()
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		got <- c
	})
	return func() *gonet.TCPConn {
		wg.Wait()
		c, ok := <-got
		if !ok {
			t.Fatal("nothing was accepted")
		}
		return c.(*gonet.TCPConn)
	}
}

var ports atomic.Uint32

func nextPort() uint16 { return uint16(8000 + ports.Add(1)) }

// connected returns both ends of one connection.
func connected(t testing.TB, l *Life, g *networktest.Guest) (client *net.UnixConn, server *gonet.TCPConn) {
	t.Helper()
	port := nextPort() // the guest keeps the last one for a minute
	take := accept(t, g.Listen(t, port, false))
	client = dial(t, l, port)
	return client, take()
}

func TestBothHalfClosesAreCarried(t *testing.T) {
	l, g := plugged(t)
	for _, clientFirst := range []bool{true, false} {
		client, server := connected(t, l, g)
		first, second := half(client), half(server)
		if !clientFirst {
			first, second = second, first
		}
		fmt.Fprint(first, "question")
		first.CloseWrite()
		if b, err := io.ReadAll(second); string(b) != "question" || err != nil {
			t.Errorf("client first %v: got %q, %v", clientFirst, b, err)
		}
		fmt.Fprint(second, "answer")
		second.CloseWrite()
		if b, err := io.ReadAll(first); string(b) != "answer" || err != nil {
			t.Errorf("client first %v: got %q, %v, want a clean end after the answer", clientFirst, b, err)
		}
		client.Close()
		server.Close()
	}
}

type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

func half(c halfCloser) halfCloser { return c }

func TestGuestResetIsNoCleanEnd(t *testing.T) {
	for _, spoke := range []string{"nobody", "client", "guest", "both"} {
		t.Run(spoke, func(t *testing.T) {
			l, g := plugged(t)
			client, server := connected(t, l, g)
			if spoke == "client" || spoke == "both" {
				fmt.Fprint(client, "hello")
				io.ReadFull(server, make([]byte, 5))
			}
			if spoke == "guest" || spoke == "both" {
				fmt.Fprint(server, "hello")
				io.ReadFull(client, make([]byte, 5))
			}
			g.Stack.Close() // aborts, which sends RST
			wantReset(t, client)
		})
	}
}

func wantReset(t testing.TB, client net.Conn) {
	t.Helper()
	client.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %d bytes, %v, want ECONNRESET", n, err)
	}
}

func TestUnplugResetsEveryConnectionBeforeItReturns(t *testing.T) {
	l, g := plugged(t)
	client, server := connected(t, l, g)
	fmt.Fprint(server, "partial")
	io.ReadFull(client, make([]byte, 7))
	l.Close()
	client.SetReadDeadline(time.Unix(1, 0)) // it must be there already
	raw, _ := client.SyscallConn()
	raw.Control(func(fd uintptr) {
		if n, err := syscall.Read(int(fd), make([]byte, 1)); err != syscall.ECONNRESET {
			t.Errorf("client: got %d, %v, want ECONNRESET", n, err)
		}
	})
	server.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := server.Read(make([]byte, 1)); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("guest: got %v, want a reset", err)
	}
	if _, err := tryDial(l, Target{Port: 8000}, time.Second); !errors.Is(err, ErrClosed) {
		t.Errorf("dial afterwards: got %v, want ErrClosed", err)
	}
}

func TestDeadGuestResetsConnectionsAndFailsDialsAtOnce(t *testing.T) {
	l, g := plugged(t)
	client, _ := connected(t, l, g)
	fmt.Fprint(client, "x")
	syscall.Shutdown(g.FD, syscall.SHUT_WR) // closing it would make gVisor's reader spin
	wantReset(t, client)
	if _, err := tryDial(l, Target{Port: 8000}, time.Minute); !errors.Is(err, ErrUnreachable) {
		t.Errorf("dial: got %v, want ErrUnreachable", err)
	}
	if l.Stats().Up {
		t.Error("stats say that the NIC is up")
	}
}

func TestClientThatClosesDeliversEverythingFirst(t *testing.T) {
	l, g := plugged(t)
	client, server := connected(t, l, g)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB, more than any one buffer on the way
	go func() {
		client.Write(sent)
		client.Close()
	}()
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes, %v, want %d and a clean end", len(got), err, len(sent))
	}
}

func TestClientThatAbandonsResetsTheGuest(t *testing.T) {
	l, g := plugged(t)
	client, server := connected(t, l, g)
	fmt.Fprint(server, "never read")
	for client.SetReadDeadline(time.Now().Add(5 * time.Second)); ; {
		var n int
		raw, _ := client.SyscallConn()
		raw.Read(func(fd uintptr) bool {
			n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return n > 0
		})
		if n > 0 {
			break
		}
	}
	client.Close()
	server.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := server.Read(make([]byte, 1)); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestClosedPortIsRefusedAndSilenceTimesOut(t *testing.T) {
	l, g := plugged(t)
	if _, err := tryDial(l, Target{Port: 81, Via: api.ViaDirect}, 5*time.Second); !errors.Is(err, ErrRefused) {
		t.Errorf("closed port: got %v, want ErrRefused", err)
	}
	g.Stack.Pause()
	g.Stack.DisableNIC(1)
	if _, err := tryDial(l, Target{Port: 81, Via: api.ViaDirect}, 50*time.Millisecond); !errors.Is(err, ErrTimeout) {
		t.Errorf("silent guest: got %v, want ErrTimeout", err)
	}
	g.Stack.Resume()
}

func TestTargetsThatAreRefusedUnseen(t *testing.T) {
	l, _ := plugged(t)
	for _, target := range []Target{
		{Port: 0},
		{Port: 80, Via: "teleport"},
		{Port: 49982},
		{Port: 49982, Via: api.ViaAgent},
		{Port: 49982, Via: api.ViaDirect},
		{Port: 49982, Via: api.ViaAgent, Control: true},
		{Port: 49982, Control: true},
		{Port: 80, Via: api.ViaDirect, Control: true},
	} {
		if _, err := tryDial(l, target, time.Second); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", target, err)
		}
	}
}

// TestConnectionsAreLimitedAndPlacesComeBack: while all are taken the server still gets to the
// agent, but no more often than there are places for that.
func TestConnectionsAreLimitedAndPlacesComeBack(t *testing.T) {
	l, g := plugged(t)
	agent := g.Listen(t, agentapi.ControlPort, false)
	ln := g.Listen(t, 8000, false)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { io.Copy(io.Discard, c); c.Close() })
		}
	})
	var open []*net.UnixConn
	for range MaxConnections {
		open = append(open, dial(t, l, 8000))
	}
	if _, err := tryDial(l, Target{Port: 8000}, time.Second); !errors.Is(err, ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
	control := Target{Port: agentapi.ControlPort, Via: api.ViaDirect, Control: true}
	for i := range KeptForControl {
		c, err := tryDial(l, control, 5*time.Second)
		if err != nil {
			t.Fatalf("connection %d to the agent: %v", i+1, err)
		}
		open = append(open, c)
	}
	if _, err := tryDial(l, control, time.Second); !errors.Is(err, ErrLimit) {
		t.Errorf("one more to the agent: got %v, want ErrLimit", err)
	}
	if _, err := tryDial(l, Target{Port: 8000, Via: api.ViaAgent}, time.Second); !errors.Is(err, ErrLimit) {
		t.Errorf("a user's by way of the agent: got %v, want ErrLimit", err)
	}
	for _, c := range open {
		c.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := tryDial(l, Target{Port: 8000}, time.Second)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no place came back: %v", err)
		}
	}
	ln.(*gonet.TCPListener).Shutdown()
	ln.Close()
	agent.Close()
	l.Close()
	wg.Wait()
}

package life

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"cubesandbox/network/api"
	"cubesandbox/network/networktest"
)

// A guest that was restored, or whose cube-network was restarted, still has the
// connections of before.
func TestConnectionOfAFormerLifeIsReset(t *testing.T) {
	g, nic := networktest.NewGuest(t)
	former, err := Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	client, server := connected(t, former, g)
	fmt.Fprint(client, "x")
	io.ReadFull(server, make([]byte, 1))
	former.nic.Stop() // it hears and says nothing any more
	former.nic.Shut()
	defer former.Close()

	l, err := Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Fprint(server, "are you still there?")
	server.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := server.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v, want a reset", err)
	}
	next, _ := connected(t, l, g)
	next.Close()
}

// What a snapshot does to its source, as far as the network can see.
func TestStandStillOfTheGuestIsOnlyADelay(t *testing.T) {
	l, g := plugged(t)
	client, server := connected(t, l, g)
	ln := g.Listen(t, 9000, false)
	defer ln.Close()
	g.Stack.Pause()
	fmt.Fprint(client, "sent while it stands still")
	dialed := make(chan error, 1)
	go func() {
		c, err := tryDial(l, Target{Port: 9000, Via: api.ViaDirect}, 10*time.Second)
		if err == nil {
			c.Close()
		}
		dialed <- err
	}()
	for l.Stats().FramesOut < 5 { // handshake, data, SYN
		runtime.Gosched()
	}
	g.Stack.Resume()
	if err := <-dialed; err != nil {
		t.Errorf("dial: %v", err)
	}
	b := make([]byte, 26)
	server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(server, b); err != nil || string(b) != "sent while it stands still" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestThousandLivesLeaveNothing(t *testing.T) {
	g, nic := networktest.NewGuest(t)
	ln := g.Listen(t, 8000, false).(*gonet.TCPListener)
	defer ln.Shutdown()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.(*gonet.TCPConn).SetDeadline(time.Now().Add(time.Second))
			io.Copy(c, c)
			c.Close()
		}
	}()
	cycle := func(i int) {
		l, err := Open(nic)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tryDial(l, Target{Port: 8000, Via: api.ViaDirect}, 10*time.Second)
		if err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		fmt.Fprint(c, "hello")
		if i%2 == 0 {
			c.CloseWrite()
			if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
				t.Fatalf("life %d: got %q, %v", i, b, err)
			}
		}
		if i%3 == 0 {
			c.Close()
		}
		l.Close()
		c.Close()
	}
	cycle(0)
	goroutines, files, endpoints := leaks(t)
	for i := range 1000 {
		cycle(i)
	}
	var g2, f2, e2 int
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		if g2, f2, e2 = leaks(t); g2 <= goroutines+2 && f2 <= files && e2 <= endpoints+2 {
			return // the guest may be at its last connections
		}
	}
	buf := make([]byte, 1<<20)
	t.Errorf("goroutines %d, then %d; files %d, then %d; endpoints %d, then %d\n%s",
		goroutines, g2, files, f2, endpoints, e2, buf[:runtime.Stack(buf, true)])
}

func leaks(t *testing.T) (goroutines, files, endpoints int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return runtime.NumGoroutine(), len(fds), len(tcpip.GetDanglingEndpoints())
}

func TestFailedDialsGiveTheirPlacesBack(t *testing.T) {
	l, _ := plugged(t)
	for range MaxConnections + 10 {
		if _, err := tryDial(l, Target{Port: 81, Via: api.ViaDirect}, 5*time.Second); !errors.Is(err, ErrRefused) {
			t.Fatalf("got %v, want ErrRefused", err)
		}
	}
}

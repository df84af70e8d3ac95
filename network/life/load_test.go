package life

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// More is under way than the socket of the NIC holds, in both directions at once.
func TestManyStreamsAtOnceDoNotCollapse(t *testing.T) {
	l, g := plugged(t)
	const streams, size = 48, 4 << 20 // bytes each way
	ln := g.Listen(t, 8000, false).(*gonet.TCPListener)
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			exchange(t, c.(*gonet.TCPConn), size)
		})
	}
	start := time.Now()
	for range streams {
		c := dial(t, l, 8000)
		wg.Go(func() { exchange(t, c, size) })
	}
	wg.Wait()
	ln.Close()
	if rate := 2 * streams * size / time.Since(start).Seconds() / 1e6; rate < 10 {
		t.Errorf("got %.0f MB/s", rate)
	}
	if s := l.Stats(); s.Dropped != 0 {
		t.Errorf("%d frames to the guest were dropped; %d had to wait", s.Dropped, s.Held)
	}
}

// exchange sends size bytes and reads as many.
func exchange(t *testing.T, c interface {
	net.Conn
	CloseWrite() error
}, size int) {
	c.SetDeadline(time.Now().Add(time.Minute))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
		c.CloseWrite()
	})
	if n, err := io.Copy(io.Discard, c); n != int64(size) || err != nil {
		t.Errorf("got %d bytes, %v, want %d", n, err, size)
	}
	wg.Wait()
	c.Close()
}

func TestFloodingGuestDoesNotSilenceOthers(t *testing.T) {
	_, bad := plugged(t)
	l, good := plugged(t)
	client, server := connected(t, l, good)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(server, server) })
	var enough atomic.Bool
	wg.Go(func() {
		frame := make([]byte, 64) // not even an address is right
		for !enough.Load() {
			unix.Write(bad.FD, frame)
		}
	})
	client.SetDeadline(time.Now().Add(20 * time.Second))
	b := []byte{1}
	for i := range 200 {
		client.Write(b)
		if _, err := io.ReadFull(client, b); err != nil {
			t.Errorf("round trip %d of 200 in 20 s: %v", i, err)
			break
		}
	}
	enough.Store(true)
	client.Close()
	server.Close()
	wg.Wait()
}

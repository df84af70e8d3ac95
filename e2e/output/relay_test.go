package output

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// relay is a network between a client and the server that breaks: a connection is reset
// after some bytes, and what was on its way is lost.
type relay struct {
	ln   net.Listener
	to   string
	most int64 // bytes from the server that a connection may carry

	mu     sync.Mutex // guards all below
	random *rand.Rand
	cuts   int
}

// newRelay begins one in front of an address. It ends with the test.
func newRelay(t *testing.T, to string, most int64, random *rand.Rand) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, to: to, most: most, random: random}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.carry(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { // connections end with their clients
		ln.Close()
		all.Wait()
	})
	return r
}

func (r *relay) url() string { return "http://" + r.ln.Addr().String() }

func (r *relay) carry(client *net.TCPConn) {
	defer client.Close()
	c, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	r.mu.Lock()
	n := r.random.Int64N(r.most)
	r.mu.Unlock()
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(server, client)
		server.CloseWrite()
	})
	if _, err := io.CopyN(client, server, n); err == nil {
		r.mu.Lock()
		r.cuts++
		r.mu.Unlock()
	}
	client.SetLinger(0) // what it has not read is lost
	client.Close()
	server.Close()
	up.Wait()
}

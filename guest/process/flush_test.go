package process

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"cubesandbox/guest/envdpb/process/processconnect"
)

// counting is a listener that counts the writes of its connections.
type counting struct {
	net.Listener
	writes atomic.Int64
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, &l.writes}, err
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestShortCommandTakesTwoWrites(t *testing.T) {
	h := &host{groups: make(map[string]int)}
	table := NewTable(func(context.Context) (Starter, error) { return h, nil }, h, h, func() {})
	path, handler := processconnect.NewProcessHandler(&Service{Table: table})
	mux := http.NewServeMux()
	mux.Handle(path, Batched(handler))
	srv := httptest.NewUnstartedServer(mux)
	l := &counting{Listener: srv.Listener}
	srv.Listener = l
	srv.Start()
	defer srv.Close()
	e := run(t, processconnect.NewProcessClient(srv.Client(), srv.URL), shell("exit 0"))
	if e.err != nil || e.end.GetStatus() != "exit status 0" {
		t.Fatalf("events %+v", e)
	}
	if n := l.writes.Load(); n != 2 {
		t.Errorf("%d writes, want 2: the start, and all the rest", n)
	}
}

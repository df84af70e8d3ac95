package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"cubesandbox/guest/agentapi"
)

const (
	maxConfigure = 1 << 20 // bytes
	dialTimeout  = 5 * time.Second
)

// control is the control protocol of package agentapi.
func (a *Agent) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/configure", a.handleConfigure)
	mux.HandleFunc("POST /v1/dial", a.handleDial)
	mux.HandleFunc("POST /v1/files", a.handleFiles)
	mux.HandleFunc("GET /v1/events", a.handleEvents)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, a.status()) })
	mux.HandleFunc("POST /v1/quiesce", func(w http.ResponseWriter, r *http.Request) {
		a.quiesce(callerOf(r.Context()))
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func (a *Agent) handleConfigure(w http.ResponseWriter, r *http.Request) {
	var c agentapi.Configure
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxConfigure)).Decode(&c); err != nil {
		http.Error(w, "configure: "+err.Error(), http.StatusBadRequest)
		return
	}
	last, err := a.configure(&c, callerOf(r.Context()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	reply(w, agentapi.Configured{Version: agentapi.Version, Agent: Version, LastEvent: last})
}

func (a *Agent) handleEvents(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil && r.URL.Query().Has("after") {
		http.Error(w, "events: after must be a number", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	for {
		events, more := a.events.after(after)
		for _, e := range events {
			if enc.Encode(e) != nil {
				return
			}
			after = e.Number
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

func (a *Agent) handleDial(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 || !strings.EqualFold(r.Header.Get("Upgrade"), "cube-dial") {
		http.Error(w, "dial: the query must name a port, and Upgrade be cube-dial", http.StatusBadRequest)
		return
	}
	target, err := dialLocal(uint16(port))
	if err != nil {
		http.Error(w, fmt.Sprintf("dial: nothing listens on port %d: %v", port, err), http.StatusBadGateway)
		return
	}
	defer target.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "dial: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer client.Close()
	client.SetDeadline(time.Time{})
	if _, err := io.WriteString(client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: cube-dial\r\n\r\n"); err != nil {
		return
	}
	c, ok := client.(*conn)
	if !ok {
		return
	}
	if n := buffered.Reader.Buffered(); n > 0 { // sent ahead of our answer
		if _, err := io.CopyN(target, buffered, int64(n)); err != nil {
			return
		}
	}
	join(c, target)
}

// dialLocal connects to a server on the sandbox's loopback.
func dialLocal(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	var first error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// join carries bytes and half-closes both ways until both sides are done; a
// failure on one side resets the other.
func join(client *conn, target *net.TCPConn) {
	var both sync.WaitGroup
	both.Go(func() { carry(target, client.TCPConn, target, client.TCPConn) })
	both.Go(func() { carry(client.TCPConn, target, target, client.TCPConn) })
	both.Wait()
}

func carry(to, from *net.TCPConn, all ...*net.TCPConn) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		for _, c := range all {
			c.SetLinger(0)
			c.Close()
		}
	}
}

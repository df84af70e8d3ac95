// Command goserver is a server of Go that keeps its connections; see
// e2e/programs/template/Server.java.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// counted is how many requests each connection and each client has sent, under its lock.
type counted struct {
	sync.Mutex
	connections int
	clients     map[string]int
}

// connection is one, as its requests know it.
type connection struct{ number, requests int }

type key struct{}

func main() {
	c := &counted{clients: map[string]int{}}
	server := http.Server{Addr: ":8080", Handler: c, ConnContext: c.accept}
	log.Fatal(server.ListenAndServe())
}

func (c *counted) accept(ctx context.Context, _ net.Conn) context.Context {
	c.Lock()
	defer c.Unlock()
	c.connections++
	return context.WithValue(ctx, key{}, &connection{number: c.connections})
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	digest := sha256.New()
	if _, err := io.Copy(digest, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Seq", c.count(r))
	fmt.Fprintf(w, "%x", digest.Sum(nil))
}

func (c *counted) count(r *http.Request) string {
	c.Lock()
	defer c.Unlock()
	of, client := r.Context().Value(key{}).(*connection), r.Header.Get("X-Client")
	of.requests++
	c.clients[client]++
	return fmt.Sprint(of.number, of.requests, c.clients[client])
}

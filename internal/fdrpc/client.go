package fdrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// ErrClosed is what calls get when the connection has ended. Whether the request
// was carried out is then not known.
var ErrClosed = errors.New("connection closed")

// Client is one connection to a Server. Safe for concurrent use.
type Client struct {
	c    *net.UnixConn
	note func(method string, body json.RawMessage)
	done chan struct{} // closed when the reader has ended

	send sync.Mutex // one message at a time

	mu      sync.Mutex // guards the following
	next    uint64
	waiting map[uint64]chan reply
	closed  bool
}

type reply struct {
	m     message
	files []*os.File
}

// Dial connects and says hello. note is called, from one goroutine, for each note
// that the server pushes; nil drops them. It must not call the client and wait.
func Dial(ctx context.Context, path, protocol string, version int, note func(method string, body json.RawMessage)) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, err
	}
	return NewClient(ctx, conn.(*net.UnixConn), protocol, version, note)
}

// NewClient says hello on a connection that is there already, which becomes the client's.
func NewClient(ctx context.Context, conn *net.UnixConn, protocol string, version int, note func(string, json.RawMessage)) (*Client, error) {
	tune(conn)
	c := &Client{c: conn, note: note, done: make(chan struct{}), waiting: map[uint64]chan reply{}}
	go c.read()
	if _, err := c.Call(ctx, "hello", hello{protocol, version}, nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Call sends a request and waits for its answer, which is read into out unless
// that is nil. The files sent stay the caller's; those returned are the caller's
// to close. When ctx ends first, the answer is dropped when it comes.
func (c *Client) Call(ctx context.Context, method string, in any, files []*os.File, out any) ([]*os.File, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	ch := make(chan reply, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", method, ErrClosed)
	}
	c.next++
	id := c.next
	c.waiting[id] = ch
	c.mu.Unlock()

	c.send.Lock()
	err = send(c.c, message{ID: id, Method: method, Body: body}, files)
	c.send.Unlock()
	if err != nil {
		c.forget(id, ch)
		if Code(err) != "" {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		return nil, fmt.Errorf("%s: %w: %v", method, ErrClosed, err)
	}
	select {
	case r, ok := <-ch:
		if !ok {
			return nil, fmt.Errorf("%s: %w", method, ErrClosed)
		}
		return r.result(method, out)
	case <-ctx.Done():
		c.forget(id, ch)
		return nil, fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

func (r reply) result(method string, out any) ([]*os.File, error) {
	if r.m.Err != nil {
		closeFiles(r.files)
		return nil, r.m.Err
	}
	if out != nil {
		if err := json.Unmarshal(r.m.Body, out); err != nil {
			closeFiles(r.files)
			return nil, fmt.Errorf("%s: answer: %w", method, err)
		}
	}
	return r.files, nil
}

// forget drops a call, and the files of an answer that has already come.
func (c *Client) forget(id uint64, ch chan reply) {
	c.mu.Lock()
	delete(c.waiting, id)
	c.mu.Unlock()
	select {
	case r := <-ch:
		closeFiles(r.files)
	default:
	}
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection and fails the calls that wait. Closing again, or
// after the other end has gone, does nothing.
func (c *Client) Close() error {
	err := c.c.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (c *Client) read() {
	defer close(c.done)
	buf := make([]byte, maxPacket)
	for {
		m, files, err := receive(c.c, buf)
		if err != nil {
			c.fail()
			return
		}
		if m.ID == 0 {
			closeFiles(files)
			if c.note != nil {
				c.note(m.Method, m.Body)
			}
			continue
		}
		c.mu.Lock()
		ch := c.waiting[m.ID]
		delete(c.waiting, m.ID)
		if ch != nil {
			ch <- reply{m, files}
		}
		c.mu.Unlock()
		if ch == nil {
			closeFiles(files)
		}
	}
}

func (c *Client) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, ch := range c.waiting {
		close(ch)
		delete(c.waiting, id)
	}
	c.c.Close()
}

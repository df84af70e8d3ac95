package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"cubesandbox/internal/fdrpc"
	"cubesandbox/network/api"
)

// Client talks to cube-network. It connects when it is first used and again
// after cube-network was restarted; a call that was under way when the
// connection broke fails with cube.ErrUnavailable. Safe for concurrent use.
//
// Errors wrap those of package cube, or ErrTimeout, ErrUnreachable, ErrLimit.
type Client struct {
	path string

	mu     sync.Mutex // guards the following
	rpc    *fdrpc.Client
	closed bool
}

// NewClient makes a client of the cube-network that listens at path.
func NewClient(path string) *Client { return &Client{path: path} }

// Close ends the connection. Calls after it fail.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.rpc == nil {
		return nil
	}
	return c.rpc.Close()
}

// Connect makes sure that there is a connection, of the right version. The other
// methods do that themselves.
func (c *Client) Connect(ctx context.Context) error {
	_, err := c.connection(ctx)
	return explain(err)
}

// Plug gives cube-network our end of a life's NIC (from NewNIC). It takes a
// duplicate. The same NIC may be plugged in again under the same life; that does
// nothing.
func (c *Client) Plug(ctx context.Context, life string, hostEnd *os.File) error {
	_, err := c.call(ctx, api.MethodPlug, api.Life{Life: life}, []*os.File{hostEnd}, nil)
	return err
}

// Unplug ends a life: its connections are reset before it returns, and it cannot
// be dialed. A life that is not there is no error.
func (c *Client) Unplug(ctx context.Context, life string) error {
	_, err := c.call(ctx, api.MethodUnplug, api.Life{Life: life}, nil, nil)
	return err
}

// Dial connects to a TCP port of a life and of no other. Half-closes are carried
// both ways. Reads give ECONNRESET when the guest resets, the life is unplugged
// or cube-network dies: io.EOF always means that the guest has ended its stream.
func (c *Client) Dial(ctx context.Context, d api.Dial) (*net.UnixConn, error) {
	files, err := c.call(ctx, api.MethodDial, d, nil, nil)
	if err != nil {
		return nil, err
	}
	f, err := one(files, api.MethodDial)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// Lives returns all lives that are plugged in, in the order of their names.
func (c *Client) Lives(ctx context.Context) ([]string, error) {
	var all []string
	for after := ""; ; {
		var p api.Page
		if _, err := c.call(ctx, api.MethodList, api.List{After: after}, nil, &p); err != nil {
			return nil, err
		}
		all = append(all, p.Lives...)
		if !p.More || len(p.Lives) == 0 {
			return all, nil
		}
		after = p.Lives[len(p.Lives)-1]
	}
}

// NIC returns a duplicate of our end of a life's NIC, for a keeper that was
// restarted. The caller closes it.
func (c *Client) NIC(ctx context.Context, life string) (*os.File, error) {
	files, err := c.call(ctx, api.MethodDescriptors, api.Life{Life: life}, nil, nil)
	if err != nil {
		return nil, err
	}
	return one(files, api.MethodDescriptors)
}

// Listener returns a duplicate of the socket that cube-network listens on, to be
// given to its successor. The caller closes it.
func (c *Client) Listener(ctx context.Context) (*os.File, error) {
	files, err := c.call(ctx, api.MethodListener, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return one(files, api.MethodListener)
}

// FreezeEgress makes everything that the guest sends be dropped, except on
// connections that were dialed from outside; or ends that.
func (c *Client) FreezeEgress(ctx context.Context, life string, frozen bool) error {
	_, err := c.call(ctx, api.MethodFreezeEgress, api.FreezeEgress{Life: life, Frozen: frozen}, nil, nil)
	return err
}

// Stats returns what happened on a life's NIC.
func (c *Client) Stats(ctx context.Context, life string) (api.Stats, error) {
	var s api.Stats
	_, err := c.call(ctx, api.MethodStats, api.Life{Life: life}, nil, &s)
	return s, err
}

func (c *Client) call(ctx context.Context, method string, in any, files []*os.File, out any) ([]*os.File, error) {
	rpc, err := c.connection(ctx)
	if err != nil {
		return nil, explain(fmt.Errorf("%s: %w", method, err))
	}
	got, err := rpc.Call(ctx, method, in, files, out)
	if errors.Is(err, fdrpc.ErrClosed) {
		c.forget(rpc)
	}
	return got, explain(err)
}

// forget drops a connection that has ended.
func (c *Client) forget(rpc *fdrpc.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rpc == rpc {
		c.rpc = nil
		rpc.Close()
	}
}

// connection returns the live connection, or makes a new one.
func (c *Client) connection(ctx context.Context) (*fdrpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("client is closed")
	}
	if c.rpc != nil {
		select {
		case <-c.rpc.Done():
			c.rpc.Close()
			c.rpc = nil
		default:
			return c.rpc, nil
		}
	}
	rpc, err := fdrpc.Dial(ctx, c.path, api.Protocol, api.Version, nil)
	if err != nil {
		return nil, err
	}
	c.rpc = rpc
	return rpc, nil
}

// one returns the only file of an answer.
func one(files []*os.File, method string) (*os.File, error) {
	if len(files) == 1 {
		return files[0], nil
	}
	for _, f := range files {
		f.Close()
	}
	return nil, fmt.Errorf("%s: answer with %d descriptors instead of one", method, len(files))
}

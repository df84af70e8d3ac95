// Package agentclient is the server's side of what server and guest agent say to
// each other. It works over any way to connect to a port of a sandbox. Whatever
// comes back was written by something that may be hostile: sizes, times and
// forms are bounded.
package agentclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

// Dialer connects to a TCP port of one life of one sandbox.
type Dialer func(ctx context.Context, port uint16) (net.Conn, error)

const (
	// maxAnswer bounds the answer to a control request, in bytes.
	maxAnswer = 64 << 10
	// answerTime bounds a control request, where its caller does not sooner.
	answerTime = 60 * time.Second
)

// SendConfigure begins a generation. It returns when the agent has applied it.
func SendConfigure(ctx context.Context, dial Dialer, c agentapi.Configure) (agentapi.Configured, error) {
	var out agentapi.Configured
	err := control(ctx, dial, http.MethodPost, "/v1/configure", c, &out)
	if err == nil && out.Version < 1 {
		err = fmt.Errorf("agent's answer to /v1/configure: %w: version %d", cube.ErrAgent, out.Version)
	}
	return out, err
}

// GetStatus asks how the agent is.
func GetStatus(ctx context.Context, dial Dialer) (agentapi.Status, error) {
	var out agentapi.Status
	err := control(ctx, dial, http.MethodGet, "/v1/status", nil, &out)
	return out, err
}

// Quiesce makes the agent close every connection, for an image that must hold none.
func Quiesce(ctx context.Context, dial Dialer) error {
	return control(ctx, dial, http.MethodPost, "/v1/quiesce", nil, nil)
}

// FollowEvents calls f for each event above after, until the stream or ctx ends. An agent
// may send any number of them: f says, by the time that it takes, how fast they are read.
func FollowEvents(ctx context.Context, dial Dialer, after uint64, f func(agentapi.Event)) error {
	resp, closer, err := roundTrip(ctx, dial, http.MethodGet, fmt.Sprintf("/v1/events?after=%d", after), nil)
	if err != nil {
		return brief(err)
	}
	defer closer()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 0, 4096), maxAnswer)
	for sc.Scan() {
		var ev agentapi.Event
		if err := json.Unmarshal(sc.Bytes(), &ev); err != nil {
			return brief(fmt.Errorf("agent's events: %w: %v", cube.ErrAgent, err))
		}
		f(ev)
	}
	if err := sc.Err(); err != nil {
		return brief(fmt.Errorf("agent's events: %w: %w", cube.ErrAgent, err))
	}
	return nil
}

// control does one request with a small answer on a connection of its own: an
// idle one would be in the next image.
func control(ctx context.Context, dial Dialer, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return brief(request(ctx, dial, method, path, in, out))
}

func request(ctx context.Context, dial Dialer, method, path string, in, out any) error {
	resp, closer, err := roundTrip(ctx, dial, method, path, in)
	if err != nil {
		return err
	}
	defer closer()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("agent's answer to %s: %w: %w", path, cube.ErrAgent, err)
	}
	if len(b) > maxAnswer {
		return fmt.Errorf("agent's answer to %s is over %d bytes: %w", path, maxAnswer, cube.ErrAgent)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("agent's answer to %s: %w: %v", path, cube.ErrAgent, err)
	}
	return nil
}

// roundTrip sends a request and reads the head of its answer, which must be a
// success. closer ends the connection.
func roundTrip(ctx context.Context, dial Dialer, method, path string, in any) (*http.Response, func(), error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Close = true
	conn, err := dial(ctx, agentapi.ControlPort)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the agent: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	closer := func() { stop(); conn.Close() }
	resp, err := exchange(conn, req)
	if err != nil {
		closer()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, nil, fmt.Errorf("agent %s: %w: %w", path, cube.ErrAgent, err)
	}
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		closer()
		return nil, nil, fmt.Errorf("agent %s: %w: status %d: %q", path, cube.ErrAgent, resp.StatusCode, text)
	}
	return resp, closer, nil
}

func exchange(conn net.Conn, req *http.Request) (*http.Response, error) {
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	head := &headLimit{r: conn, left: maxAnswer}
	resp, err := http.ReadResponse(bufio.NewReaderSize(head, 4096), req)
	head.done = true // whoever reads the body bounds it
	return resp, err
}

// headLimit bounds the head of an answer.
type headLimit struct {
	r    io.Reader
	left int
	done bool
}

func (h *headLimit) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if h.left -= n; h.left < 0 && !h.done {
		return 0, fmt.Errorf("the head of the answer is over %d bytes", maxAnswer)
	}
	return n, err
}

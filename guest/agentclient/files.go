package agentclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
)

// stall is how long an agent may take none of what it is sent, and, when it has taken
// all, how long it may take to answer.
const stall = 60 * time.Second

// SendFiles puts a tar of a writable layer in place, in a life that was not
// configured yet. It lasts as long as the agent takes something of it; a life in which
// it has failed is of no use.
func SendFiles(ctx context.Context, dial Dialer, r io.Reader) (agentapi.Unpacked, error) {
	return sendFiles(ctx, dial, r, stall)
}

func sendFiles(ctx context.Context, dial Dialer, r io.Reader, stall time.Duration) (agentapi.Unpacked, error) {
	conn, err := dial(ctx, agentapi.ControlPort)
	if err != nil {
		return agentapi.Unpacked{}, fmt.Errorf("connect to the agent: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stuck := time.AfterFunc(stall, func() { cancel(fmt.Errorf("it has taken nothing for %v", stall)) })
	defer stuck.Stop()
	body := &watched{r: r, each: func() { stuck.Reset(stall) }}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/v1/files", body)
	if err != nil {
		conn.Close()
		return agentapi.Unpacked{}, err
	}
	req.Close = true
	out, err := upload(conn, req, body)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil && !errors.Is(err, cube.ErrAgent) && !errors.Is(err, body.failed()) {
		err = fmt.Errorf("%w: %w", cube.ErrAgent, err)
	}
	if err != nil {
		return out, brief(fmt.Errorf("send files to the agent: %w", err))
	}
	return out, nil
}

// upload sends a request while it reads the answer, which comes early when the agent
// does not want the rest. It closes the connection.
func upload(conn net.Conn, req *http.Request, body *watched) (out agentapi.Unpacked, err error) {
	var sending sync.WaitGroup
	defer sending.Wait()
	defer conn.Close()
	sending.Go(func() {
		if req.Write(conn) != nil && body.failed() != nil {
			conn.Close() // there is no more to come: the agent waits for it
		}
	})
	head := &headLimit{r: conn, left: maxAnswer}
	resp, err := http.ReadResponse(bufio.NewReaderSize(head, 4096), req)
	if err != nil {
		return out, errors.Join(body.failed(), err)
	}
	body.stop() // what the agent does not want to know ends here
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		return out, fmt.Errorf("%w: status %d: %s", cube.ErrAgent, resp.StatusCode, firstLine(text))
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// watched is a body of which each piece is told, and its error kept.
type watched struct {
	r    io.Reader
	each func()

	mu      sync.Mutex // guards the following
	err     error
	stopped bool
}

func (w *watched) Read(p []byte) (int, error) {
	w.mu.Lock()
	stopped := w.stopped
	w.mu.Unlock()
	if stopped {
		return 0, io.EOF
	}
	w.each()
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return n, err
}

// stop makes the body end.
func (w *watched) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// failed is why the body could not be read, or nil.
func (w *watched) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

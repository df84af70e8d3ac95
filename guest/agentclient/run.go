package agentclient

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	cube "cubesandbox"
	"cubesandbox/guest/envdpb/process"

	"connectrpc.com/connect"
)

// RunOptions says how Run runs a program. The zero value runs it as the default
// user in its home directory, without standard input.
type RunOptions struct {
	User string
	Cwd  string
	Env  map[string]string
	// Stdin, if not nil, is what the program reads.
	Stdin []byte
	// MaxOutput bounds stdout and stderr, each, in bytes; 0 means 16 MiB.
	MaxOutput int
}

// Result is what a program left.
type Result struct {
	PID            uint32
	Stdout, Stderr []byte
	// ExitCode is -1 when a signal ended it.
	ExitCode int
	// Status is such as "exit status 7" or "signal: killed".
	Status string
	// Error is empty after success, and "oom" when the sandbox's memory was used up.
	Error string
}

const defaultMaxOutput = 16 << 20

// Run runs a program to its end. The end of ctx kills it if ctx has a deadline.
// A program that fails is no error.
func (c *Client) Run(ctx context.Context, cmd string, args []string, o RunOptions) (Result, error) {
	stdin := o.Stdin != nil
	msg := &process.StartRequest{Process: &process.ProcessConfig{Cmd: cmd, Args: args, Envs: o.Env}, Stdin: &stdin}
	if o.Cwd != "" {
		msg.Process.Cwd = &o.Cwd
	}
	req := connect.NewRequest(msg)
	asUser(req.Header(), o.User)
	stream, err := c.Process.Start(ctx, req)
	if err != nil {
		return Result{}, fmt.Errorf("run %s: %w", cmd, brief(err))
	}
	defer stream.Close()
	out := output{max: o.MaxOutput}
	if out.max <= 0 {
		out.max = defaultMaxOutput
	}
	for stream.Receive() {
		e := stream.Msg().GetEvent()
		if start := e.GetStart(); start != nil && stdin {
			if err := c.feed(ctx, start.Pid, o.Stdin); err != nil {
				return out.Result, fmt.Errorf("run %s: %w", cmd, brief(err))
			}
			stdin = false
		}
		done, err := out.take(e)
		if err != nil {
			return out.Result, fmt.Errorf("run %s: %w", cmd, err)
		}
		if done {
			return out.Result, drain(stream)
		}
	}
	if err := stream.Err(); err != nil {
		return out.Result, fmt.Errorf("run %s: %w", cmd, brief(err))
	}
	return out.Result, fmt.Errorf("run %s: %w: the stream ended before the process", cmd, cube.ErrAgent)
}

// drain reads the end of a stream, so that its connection can be used again.
func drain(stream *connect.ServerStreamForClient[process.StartResponse]) error {
	if stream.Receive() {
		return fmt.Errorf("%w: an event after the end", cube.ErrAgent)
	}
	return stream.Err()
}

type output struct {
	Result
	max int
}

func (o *output) take(e *process.ProcessEvent) (done bool, err error) {
	switch e := e.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		o.PID = e.Start.GetPid()
	case *process.ProcessEvent_Data:
		o.Stdout = append(o.Stdout, e.Data.GetStdout()...)
		o.Stderr = append(o.Stderr, e.Data.GetStderr()...)
		if len(o.Stdout) > o.max || len(o.Stderr) > o.max {
			return false, fmt.Errorf("more than %d bytes of output", o.max)
		}
	case *process.ProcessEvent_Dropped:
		return false, fmt.Errorf("%d bytes of output are missing", e.Dropped.GetBytes())
	case *process.ProcessEvent_End:
		o.ExitCode, o.Status, o.Error = int(e.End.ExitCode), harmless(e.End.Status), harmless(e.End.GetError())
		return true, nil
	}
	return false, nil
}

// feed writes a program's standard input and closes it.
func (c *Client) feed(ctx context.Context, pid uint32, data []byte) error {
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
	for len(data) > 0 {
		n := min(len(data), 1<<20)
		in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: data[:n]}}
		_, err := c.Process.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: sel, Input: in}))
		if code := connect.CodeOf(err); err != nil && code != connect.CodeNotFound && code != connect.CodeFailedPrecondition {
			return err
		}
		if err != nil { // it has ended, or reads no more
			return nil
		}
		data = data[n:]
	}
	_, err := c.Process.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: sel}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		err = nil
	}
	return err
}

// asUser says on whose behalf a request is.
func asUser(h http.Header, user string) {
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
}

// ReadFile reads a file of at most max bytes as a user (empty: the default one).
func (c *Client) ReadFile(ctx context.Context, user, path string, max int64) ([]byte, error) {
	res, err := c.files(ctx, http.MethodGet, user, path, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, brief(err))
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("longer than %d bytes", max)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, brief(err))
	}
	return b, nil
}

// WriteFile writes a file as a user (empty: the default one), with its parents.
func (c *Client) WriteFile(ctx context.Context, user, path string, data []byte) error {
	res, err := c.files(ctx, http.MethodPost, user, path, data)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, brief(err))
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	return err
}

func (c *Client) files(ctx context.Context, method, user, path string, data []byte) (*http.Response, error) {
	query := url.Values{"path": {path}}
	if user != "" {
		query.Set("username", user)
	}
	req, err := http.NewRequestWithContext(ctx, method, envdURL+"/files?"+query.Encode(), bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := c.RoundTrip(req)
	if err != nil || res.StatusCode == http.StatusOK {
		return res, err
	}
	defer res.Body.Close()
	var e struct {
		Code    int
		Message string
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(b, &e) != nil {
		return nil, fmt.Errorf("%w: %s: %s", cube.ErrAgent, res.Status, firstLine(b))
	}
	return nil, &FileError{res.StatusCode, e.Message}
}

// FileError is what the agent answers when it cannot read or write a file.
type FileError struct {
	// Status is the HTTP status.
	Status  int
	Message string
}

func (e *FileError) Error() string { return firstLine([]byte(e.Message)) }

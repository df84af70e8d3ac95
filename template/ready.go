package template

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"
)

// longestOutput bounds what is kept of a warm command's output, in bytes.
const longestOutput = 4096

// makeReady waits until the sandbox serves envd, then runs the warm commands. It
// leaves no connection open: an image must not hold ours.
func makeReady(ctx context.Context, engine Engine, id cube.SandboxID, def *Definition) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return engine.Dial(ctx, id, 0, agentapi.EnvdPort)
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	if err := healthy(ctx, client); err != nil {
		return err
	}
	for _, command := range def.Warm {
		if err := run(ctx, client, def.User.Name, command); err != nil {
			return def.wrong("", "warm", "%q: %v", command, err)
		}
	}
	return nil
}

// healthy asks once: the engine's Boot has already waited for the agent.
func healthy(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/health", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask envd for its health: %w: %w", err, cube.ErrAgent)
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("envd says %s to /health: %w", resp.Status, cube.ErrAgent)
	}
	return nil
}

// run runs a shell command inside as user and waits for it to end with status 0.
func run(ctx context.Context, client *http.Client, user, command string) error {
	envd := processconnect.NewProcessClient(client, "http://sandbox")
	req := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{
		Cmd: "/bin/sh", Args: []string{"-c", command},
	}})
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	stream, err := envd.Start(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	var said []byte
	for stream.Receive() {
		event := stream.Msg().GetEvent()
		if data := event.GetData(); data != nil && len(said) < longestOutput {
			said = append(append(said, data.GetStdout()...), data.GetStderr()...)
		}
		if end := event.GetEnd(); end != nil {
			if end.GetExitCode() != 0 || !end.GetExited() {
				return fmt.Errorf("%s; it said: %s", end.GetStatus(), said[:min(len(said), longestOutput)])
			}
			return nil
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the stream ended before the process: %w", cube.ErrAgent)
}

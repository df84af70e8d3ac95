package template

import (
	"context"
	"fmt"
	"net"

	cube "cubesandbox"
	"cubesandbox/guest/agentclient"
)

// longestOutput bounds what a warm command may say on each stream, in bytes.
const longestOutput = 64 << 10

// makeReady runs the warm commands in a sandbox that Boot has waited for. It leaves
// no connection open: an image must not hold ours.
func makeReady(ctx context.Context, engine Engine, id cube.SandboxID, def *Definition) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client := agentclient.New(func(ctx context.Context, port uint16) (net.Conn, error) {
		return engine.Dial(ctx, id, 0, port)
	}, "")
	defer client.Close()
	for _, command := range def.Warm {
		o := agentclient.RunOptions{User: def.User.Name, MaxOutput: longestOutput}
		r, err := client.Run(ctx, "/bin/sh", []string{"-c", command}, o)
		if err != nil {
			return err
		}
		if r.ExitCode != 0 {
			return def.wrong("", "warm", "%q fails inside: %s: %s", command, r.Status, lastLines(r.Stdout, r.Stderr))
		}
	}
	return nil
}

// lastLines is the end of what a command said, fit for an error message.
func lastLines(stdout, stderr []byte) string {
	const most = 500
	said := fmt.Appendf(nil, "%s%s", stdout, stderr)
	return fmt.Sprintf("%q", said[max(0, len(said)-most):])
}

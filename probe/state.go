package probe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
)

// Port is where the program listens, on 127.0.0.1 inside.
const Port = 18080

// ProgramPath is where the program is put inside.
const ProgramPath = "/root/cube-probe.py"

// State is what the program says of itself.
type State struct {
	Counter int  `json:"counter"`
	Held    bool `json:"held"`
	// Identity is random at start. What is published is only a short hash of it.
	Identity string `json:"identity"`
	PID      int    `json:"pid"`
	// Digest is the SHA-256 of identity and counter.
	Digest string `json:"digest"`
}

// published is s with the hash of its identity for the identity.
func (s State) published() State {
	sum := sha256.Sum256([]byte(s.Identity))
	s.Identity = hex.EncodeToString(sum[:6])
	return s
}

// Start puts the program into a sandbox and returns when it answers.
func Start(ctx context.Context, t Target, sandbox string) error {
	if err := t.WriteFile(ctx, sandbox, ProgramPath, program); err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	out, err := t.Run(ctx, sandbox, "/usr/bin/python3", ProgramPath, strconv.Itoa(Port))
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	if out.Exit != 0 {
		return fmt.Errorf("start the program: exit status %d: %.200s", out.Exit, out.Stderr)
	}
	return nil
}

// Query asks the program over a new connection: "state", "hold", "run" or
// "wait?above=N".
func Query(ctx context.Context, t Target, sandbox, what string) (State, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/%s", Port, what)
	out, err := t.Run(ctx, sandbox, "/usr/bin/curl", "--silent", "--show-error", "--fail", "--max-time", "25", url)
	if err != nil {
		return State{}, fmt.Errorf("query %s: %w", what, err)
	}
	if out.Exit != 0 {
		return State{}, fmt.Errorf("query %s: %w", what, &curlError{out.Exit, string(out.Stderr)})
	}
	var s State
	if err := json.Unmarshal(out.Stdout, &s); err != nil {
		return State{}, fmt.Errorf("query %s: answer %.200q: %w", what, out.Stdout, err)
	}
	return s, nil
}

// couldNotConnect is curl's exit status when nothing listens.
const couldNotConnect = 7

type curlError struct {
	status int
	stderr string
}

func (e *curlError) Error() string {
	return fmt.Sprintf("curl: exit status %d: %.200s", e.status, e.stderr)
}

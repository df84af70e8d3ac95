// Package probe repeats the experiment that a sandbox service must pass: a program
// that keeps its progress only in memory is saved, killed, brought back by a
// rollback, and brought back once more in a new sandbox after the first is gone.
//
// Each round: start the program; hold its counter and write down five values;
// snapshot; let it run on, write a file, SIGKILL it, see the query fail; roll
// back; compare the five values and the file; let it run on; kill the sandbox;
// create another from the snapshot; compare; let it run on; clean up. At the end
// it is counted what is left. Every query is a new connection, made inside.
package probe

import (
	"context"
	_ "embed"
)

// program is what runs inside.
//
//go:embed program.py
var program []byte

// Target is a service under probe: the engine itself, or an API in front of it.
// Ids are the service's. All methods may be called after a failure.
type Target interface {
	// Create makes a sandbox from a snapshot, or from the base template for "".
	Create(ctx context.Context, snapshot string) (sandbox string, err error)
	Snapshot(ctx context.Context, sandbox string) (snapshot string, err error)
	Rollback(ctx context.Context, sandbox, snapshot string) error
	Kill(ctx context.Context, sandbox string) error
	DeleteSnapshot(ctx context.Context, snapshot string) error
	// Sandboxes and Snapshots list what is there.
	Sandboxes(ctx context.Context) ([]string, error)
	Snapshots(ctx context.Context) ([]string, error)
	// Run runs a program as root in a sandbox and waits for its end.
	Run(ctx context.Context, sandbox string, argv ...string) (Output, error)
	WriteFile(ctx context.Context, sandbox, path string, content []byte) error
	ReadFile(ctx context.Context, sandbox, path string) ([]byte, error)
}

// Output is what a program gave.
type Output struct {
	Stdout, Stderr []byte
	// Exit is the exit status; -1 when a signal ended it.
	Exit int
}

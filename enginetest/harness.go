// Package enginetest is one suite that every cube.Engine must pass: each sentence
// of the contract in engine.go is a subtest that is named after the promise, what
// is promised for failures included.
//
// An engine's own test brings a Harness and calls Run. What an engine cannot show
// stands in Harness.Unsupported with its reason: those promises are listed, and
// nothing else is left out.
package enginetest

import (
	"context"
	"testing"

	cube "cubesandbox"
)

// Fault is something that goes wrong under an engine.
type Fault string

// The faults. Those of an image are brought about in the image that is given.
const (
	// SaveFails: an image cannot be written, as when the state directory is full.
	SaveFails Fault = "save fails"
	// StartFails: no new life can be started.
	StartFails Fault = "start fails"
	// OutOfMemory: the host has no memory left for another sandbox.
	OutOfMemory Fault = "out of memory"
	// Truncated: the pages file of the image is shorter than it was.
	Truncated Fault = "pages truncated"
	// Altered: the pages file has another content than was saved.
	Altered Fault = "pages altered"
	// Shortened: the pages file gets shorter while it is being read.
	Shortened Fault = "pages shortened while read"
	// ReadError: the device gives an I/O error for some of the pages.
	ReadError Fault = "pages give an I/O error"
	// OtherVersion: the image was made by a version that is not there.
	OtherVersion Fault = "image of another version"
)

// imageFaults are those that an image can have, with the error that is promised.
var imageFaults = map[Fault]error{
	Truncated: cube.ErrCorrupt, Altered: cube.ErrCorrupt, Shortened: cube.ErrCorrupt,
	ReadError: cube.ErrUnavailable, OtherVersion: cube.ErrIncompatible,
}

// Harness is an engine and what the suite needs to look inside and to break things.
type Harness struct {
	// Open gives an engine on the same machine each time; the suite closes it.
	Open func(ctx context.Context) (cube.Engine, error)
	// Image is published. Sandboxes that are restored from it answer Put, Get and
	// Identity, and listen on EchoPort.
	Image cube.ImageID
	// Boot starts a sandbox cold; the suite sets its ID.
	Boot cube.BootSpec

	// Put keeps a value inside, in memory and, where there are files, in a file.
	Put func(ctx context.Context, e cube.Engine, id cube.SandboxID, key, value string) error
	// Get returns it, "" when it was never put. Memory and file must agree.
	Get func(ctx context.Context, e cube.Engine, id cube.SandboxID, key string) (string, error)
	// Identity is what new processes inside see.
	Identity func(ctx context.Context, e cube.Engine, id cube.SandboxID) (cube.Identity, error)
	// EchoPort is where a server inside, on 127.0.0.1, sends back each line.
	EchoPort uint16
	// Slow makes verbs on this sandbox take 10 ms or more.
	Slow func(t *testing.T, e cube.Engine, id cube.SandboxID)
	// Crash ends the kernel of a sandbox from outside.
	Crash func(ctx context.Context, e cube.Engine, id cube.SandboxID) error

	// Images returns what is published; DeleteImage takes one away.
	Images      func(ctx context.Context) ([]cube.ImageID, error)
	DeleteImage func(ctx context.Context, id cube.ImageID) error
	// PoolMembers counts restored members that are unclaimed.
	PoolMembers func(ctx context.Context) (int, error)

	// Faults brings each fault about; undo takes it away again.
	Faults map[Fault]func(t *testing.T, image cube.ImageID) (undo func())
	// Begin notes what is there (processes, descriptors, mounts, cgroups, sockets,
	// files); what it returns says what is there beyond that, nil for nothing. It
	// may wait for what is just going away.
	Begin func(t *testing.T) (left func() error)

	// Unsupported names promises that the engine cannot show, by subtest name or
	// by Fault, with the reason.
	Unsupported map[string]string
}

package cube

import (
	"context"
	"encoding/json"
	"net"
	"time"
)

// Service is what users of one machine ask for: the verbs on sandboxes, with names,
// tokens, time limits and records.
//
// What holds for every method:
//
//   - Concurrency. All may be called at the same time. Verbs on one sandbox wait for
//     each other and then look at what it is by then; Kill wins over all that wait.
//   - Answers. What a verb returns is true at a moment between call and return.
//   - Failure leaves the sandbox as it was. A sandbox that has died meanwhile, or
//     ended, is ErrNotFound (EndedError where it is known to have existed); one that
//     is not in the state that the verb needs is ErrConflict.
//   - Capacity. What a verb needs is reserved before it begins; where there is not
//     enough it fails at once with a CapacityError.
type Service interface {
	// Create makes a sandbox and returns when its agent has answered.
	Create(ctx context.Context, n NewSandbox) (Record, error)
	// Get returns a sandbox that has not ended.
	Get(ctx context.Context, id SandboxID) (Record, error)
	// Usage says what a running sandbox takes. ErrConflict where it does not run.
	Usage(ctx context.Context, id SandboxID) (Usage, error)
	// List returns sandboxes that have not ended.
	List(ctx context.Context, q SandboxQuery) (SandboxPage, error)
	// Kill ends a sandbox, paused ones too. When it returns nothing is left of it
	// but the reason. Killing what another call is killing waits and gives
	// ErrNotFound.
	Kill(ctx context.Context, id SandboxID) error
	// Pause saves a sandbox and frees its memory, once what was saved is durable.
	// ErrConflict when it is paused.
	Pause(ctx context.Context, id SandboxID, p Pausing) error
	// Resume brings a paused sandbox back. ErrConflict when it runs.
	Resume(ctx context.Context, id SandboxID, o Resumption) (Record, error)
	// Connect makes sure that a sandbox runs, and says whether it had to be resumed.
	Connect(ctx context.Context, id SandboxID, o Resumption) (r Record, resumed bool, err error)
	// SetTimeout gives a sandbox a new timeout, counted from now; shorter ones too.
	SetTimeout(ctx context.Context, id SandboxID, timeout time.Duration) error
	// Refresh moves the end to at least d from now; it never shortens.
	Refresh(ctx context.Context, id SandboxID, d time.Duration) error
	// Recover brings a sandbox that has died back from its newest snapshot, under its
	// id, with its tokens. ErrConflict when it runs or is paused, ErrNotFound when
	// there is no snapshot or it was killed.
	Recover(ctx context.Context, id SandboxID) (Record, error)
	// Ended returns sandboxes that have ended and are not forgotten, the last first.
	// Those whose Recoverable is true can be brought back from their Image; the Phase is
	// PhaseRecovering where that is being done already, by itself.
	Ended(ctx context.Context) ([]Record, error)
	// Rollback takes a running sandbox back to a snapshot, by id or name.
	Rollback(ctx context.Context, id SandboxID, snapshot string) (Record, error)
	// Clone makes n sandboxes from a running one, of one instant: all or none.
	Clone(ctx context.Context, id SandboxID, c Cloning) ([]Record, error)

	// Snapshot saves a running sandbox, which runs on. It is answered when published,
	// and durable within seconds.
	Snapshot(ctx context.Context, id SandboxID, o Snapshotting) (Snapshot, error)
	// Snapshots returns snapshots that are ready.
	Snapshots(ctx context.Context, q SnapshotQuery) (SnapshotPage, error)
	// Templates returns all templates, ordered by id.
	Templates(ctx context.Context) ([]Template, error)
	// DeleteImage deletes a template or snapshot, by id or name. It is gone for
	// everybody at once; its space is free when the last sandbox has ended that was
	// made from it.
	DeleteImage(ctx context.Context, idOrName string) error
	// Spaces says of each image, those that sandboxes are paused to too, what it takes on
	// disk alone and together with others.
	Spaces(ctx context.Context) map[ImageID]Space
	// VerifyImage reads a template or snapshot, by id or name, whole. ErrCorrupt.
	VerifyImage(ctx context.Context, idOrName string) (Image, error)
	// Collect frees what nothing needs and says what that was; with dry it only says.
	Collect(ctx context.Context, dry bool) ([]Garbage, error)
	// Plans says what verbs are under way, and how far. It changes nothing.
	Plans(ctx context.Context) ([]PlanState, error)

	// Route says what a request to a sandbox needs to know. It is cheap, and works
	// in every phase; what never was is ErrNotFound.
	Route(ctx context.Context, id SandboxID) (Route, error)
	// Wake is Connect without another timeout, for traffic that came to a paused
	// sandbox with AutoResume; at once for one that runs.
	Wake(ctx context.Context, id SandboxID) (Route, error)
	// Touch notes traffic. It is cheap. The function that it returns ends the
	// traffic: a sandbox with open streams is not idle.
	Touch(id SandboxID) (done func())
	// Doubt says that a request to the agent of a life has had no answer, or none that
	// an agent gives. The agent is then asked, once for any number of doubts, and the
	// Record says what has come out. It is cheap and returns at once.
	Doubt(id SandboxID, gen Generation)
	// ByToken returns the running or paused sandbox whose access token fits; fits is
	// called with each, in time that does not depend on which it is.
	ByToken(fits func(token string) bool) (SandboxID, bool)
	// Dial connects to a port, as Engine.Dial does.
	Dial(ctx context.Context, id SandboxID, gen Generation, port uint16) (net.Conn, error)
}

// NewSandbox says what to create.
type NewSandbox struct {
	// Template is the id or name of a template or snapshot; a name may have a tag
	// (":default").
	Template  string
	Timeout   time.Duration // above 0, or NeverTimeout
	Clock     Clock
	OnTimeout OnTimeout // empty: kill
	// AutoResume needs no OnTimeoutPause: a sandbox can be paused by hand too.
	AutoResume bool
	// AutoRecover: when it dies it is brought back from its newest snapshot.
	AutoRecover bool
	// FilesFallback: where its memory cannot be restored, it is booted from its files.
	FilesFallback bool
	// Key makes the request idempotent: the same again within a day is answered by
	// what the first one made, also after a crash. Up to 255 bytes; empty: it is not.
	Key string
	// Open: no access token is asked for by the agent.
	Open bool
	// Private: ports other than envd's need the traffic token.
	Private       bool
	Metadata, Env map[string]string
	// User is who runs what no user is named for; empty: "user".
	User          string
	AllowInternet *bool
	Network, MCP  json.RawMessage
}

// Resumption says how long a sandbox may go on.
type Resumption struct {
	// Timeout from now; 0: what it had. A running sandbox's end is only ever moved
	// away by it, unless its clock is ClockIdle, where it is simply set.
	Timeout time.Duration
	// OnTimeout and AutoResume replace what was set at create; nil leaves them.
	OnTimeout  *OnTimeout
	AutoResume *bool
	// Files: boot it from its files, whether its memory can be restored or not.
	Files bool
	// FilesFallback: boot it from its files if its memory cannot be restored.
	FilesFallback bool
}

// Snapshotting says how to save.
type Snapshotting struct {
	Name string // empty for none
	Key  string // as in NewSandbox
}

// Cloning says what clones to make.
type Cloning struct {
	// N is how many, 1 to 100.
	N int
	// Concurrency is how many are restored at the same time; 0: as fits the machine,
	// which is also the upper bound.
	Concurrency int
	// Timeout of each; 0: that of the source.
	Timeout time.Duration
	Key     string // as in NewSandbox
}

// SandboxQuery says which sandboxes to list, and which page of them.
type SandboxQuery struct {
	// Phases wanted: PhaseRunning, PhasePaused; empty for both. Those that a verb is
	// at work on count as what they were before, those being paused as paused.
	Phases []Phase
	// Metadata must all be there.
	Metadata map[string]string
	// Template is an id, or a name without tag.
	Template     string
	StartedAfter time.Time // inclusive; zero for all
	// Ascending orders by StartedAt, oldest first; the default is newest first.
	Ascending bool
	// Cursor is SandboxPage.Next of the page before; empty for the first.
	Cursor string
	Limit  int // 1 and more; 0 for all
}

// SandboxPage is a part of a list.
type SandboxPage struct {
	Sandboxes []Record
	Next      string // empty: that was all
	// Running is how many of all that fit the query run.
	Running int
}

// SnapshotQuery says which snapshots to list, newest first.
type SnapshotQuery struct {
	Source SandboxID // empty for all
	Name   string    // with or without tag; empty for all
	Cursor string
	Limit  int // 1 and more; 0 for all
}

// SnapshotPage is a part of a list.
type SnapshotPage struct {
	Snapshots []Snapshot
	Next      string
}

// Route is what a request to a sandbox needs to know.
type Route struct {
	ID         SandboxID
	Generation Generation
	Phase      Phase
	AutoResume bool
	// AccessToken is asked for by the agent; TrafficToken by whoever forwards, on
	// every port but envd's. Empty: none is.
	AccessToken, TrafficToken string
	// MaskHost replaces the Host header, "${PORT}" in it by the port; empty: it stays.
	MaskHost string
	// End is set in PhaseEnded.
	End *Death
}

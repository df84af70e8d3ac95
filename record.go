package cube

import (
	"encoding/json"
	"fmt"
	"time"
)

// Record is a sandbox as the service knows it: what must survive the end of every
// process of ours, and what must not go back in time with its memory.
type Record struct {
	ID SandboxID
	// Generation of the current life, or of the last one while there is none.
	Generation Generation
	Phase      Phase
	// Template is what it was made from: a template, or a snapshot.
	Template ImageID
	// Alias is the name that was asked for at create; empty for an id.
	Alias string
	// Parent is the sandbox that it is a clone of, or whose snapshot it was made
	// from; empty for one made from a template.
	Parent   SandboxID
	Limits   Limits
	Identity Identity
	// TrafficToken is asked for on every port but envd's; empty: none is.
	TrafficToken string
	Metadata     map[string]string
	Clock        Clock
	// Timeout is how long it may live (ClockAbsolute: from when it was set,
	// ClockIdle: without traffic); NeverTimeout for always.
	Timeout time.Duration
	// EndAt is when the time is over; zero for never, and while it is paused.
	EndAt     time.Time
	OnTimeout OnTimeout
	// AutoResume: traffic to it while it is paused brings it back.
	AutoResume bool
	// AutoRecover: when it dies it is brought back from its newest snapshot.
	AutoRecover bool
	// FilesFallback: where its memory cannot be restored, it is booted from its files.
	FilesFallback bool
	// Restored says how its current life began.
	Restored Restored
	// AllowInternet is what was asked for; nil where nothing was.
	AllowInternet *bool
	// Network and MCP are what was asked for, as JSON objects; nil where nothing was.
	Network json.RawMessage `json:",omitempty"`
	MCP     json.RawMessage `json:",omitempty"`
	// Image is the saved state of a sandbox that is paused, or is becoming so or
	// ceasing to be; empty otherwise.
	Image ImageID
	// StartedAt is when it was created. It never changes.
	StartedAt time.Time
	// ChangedAt is when Phase became what it is.
	ChangedAt time.Time
	// End says why it ended, when Phase is PhaseEnded, why it is being ended, when it is
	// PhaseKilling, or from what end it is being brought back, when it is
	// PhaseRecovering.
	End *Death
	// Recoverable, when Phase is PhaseEnded: it died, and all that Recover needs but a
	// snapshot is still here.
	Recoverable bool
	// RecoveredAt is when it was last brought back from a snapshot; zero for never.
	RecoveredAt time.Time
	// Unhealthy is set while its agent does not answer as it should. It is of the
	// current life alone, found out anew by each service, and in no store.
	Unhealthy *Unhealthy
}

// Unhealthy says what is wrong with a sandbox that runs.
type Unhealthy struct {
	// Reason is one line for a person.
	Reason string
	// Since is when it was first found out.
	Since time.Time
}

// Restored says from what a life began.
type Restored string

// What it can be. Empty: it was booted, or its image was made before this was noted.
const (
	RestoredMemory Restored = "memory"
	RestoredFiles  Restored = "files"
)

// Phase is where a sandbox is between create and its end. It is on disk before
// anything is done about it, so that whoever finds it knows what was meant.
type Phase string

// The phases. Those that end in "ing", but for running, belong to a verb at work.
const (
	PhaseCreating    Phase = "creating"
	PhaseRunning     Phase = "running"
	PhasePausing     Phase = "pausing"
	PhasePaused      Phase = "paused"
	PhaseResuming    Phase = "resuming"
	PhaseRollingBack Phase = "rolling-back"
	PhaseKilling     Phase = "killing"
	// PhaseRecovering: it had ended, and is being restored from Image, a snapshot.
	PhaseRecovering Phase = "recovering"
	// PhaseEnded is what is left of a sandbox that is no more: id, times and why.
	PhaseEnded Phase = "ended"
)

// Clock is what a sandbox's timeout counts. It is fixed at create.
type Clock string

const (
	// ClockAbsolute: the end is a moment, moved only when somebody moves it (E2B).
	ClockAbsolute Clock = "absolute"
	// ClockIdle: the time since the last traffic counts (CubeSandbox).
	ClockIdle Clock = "idle"
)

// OnTimeout is what happens when a sandbox's time is over.
type OnTimeout string

// What can happen.
const (
	OnTimeoutKill  OnTimeout = "kill"
	OnTimeoutPause OnTimeout = "pause"
)

// NeverTimeout as a timeout: it has no end.
const NeverTimeout time.Duration = -1

// Snapshot is the saved state of a sandbox, kept by name or id until somebody
// deletes it.
type Snapshot struct {
	ID ImageID
	// Name is the one given, without a tag; empty for none. Several may have the
	// same: the newest is meant by it.
	Name string
	// Source is the sandbox that was saved.
	Source SandboxID
	// Template is what Source was made from.
	Template  ImageID
	State     SnapshotState
	CreatedAt time.Time
	Limits    Limits
	// Env is what Source had set in every process. A sandbox that is made from the
	// snapshot has it too, below what its own request sets.
	Env map[string]string
	// Bytes is its own size on disk; 0 until it is ready.
	Bytes int64
	// Durable: it survives a power cut, which it does within seconds.
	Durable bool
}

// SnapshotState says whether a snapshot can be used.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotCreating SnapshotState = "creating"
	SnapshotReady    SnapshotState = "ready"
	SnapshotDeleting SnapshotState = "deleting"
)

// Template is what sandboxes are made from.
type Template struct {
	Image Image
	// Names are those that mean it now, in order.
	Names []string
}

// EndedError is ErrNotFound for a sandbox that existed.
type EndedError struct {
	ID  SandboxID
	End Death
	// Recovery is the snapshot that Recover would take; empty: there is no way back.
	Recovery ImageID
}

func (e *EndedError) Error() string {
	s := fmt.Sprintf("sandbox %s not found: it ended at %s (%s", e.ID, e.End.At.UTC().Format(time.RFC3339), e.End.Reason)
	if e.End.Detail != "" {
		s += ": " + e.End.Detail
	}
	s += ")"
	if e.Recovery != "" {
		s += fmt.Sprintf("; it can be recovered from its snapshot %s: cube sandbox recover %s", e.Recovery, e.ID)
	}
	return s
}

// Unwrap makes errors.Is(err, ErrNotFound) true.
func (e *EndedError) Unwrap() error { return ErrNotFound }

package cube

import "time"

// Event is something that happened to a sandbox and was not asked for.
type Event struct {
	Kind       EventKind  `json:"kind"`
	Sandbox    SandboxID  `json:"sandbox"`
	Generation Generation `json:"generation"`
	At         time.Time  `json:"at"`
	// Detail is one line for a person.
	Detail string `json:"detail,omitempty"`
	// Death is set for EventDied.
	Death *Death `json:"death,omitempty"`
}

// EventKind is what happened.
type EventKind string

// The kinds of event.
const (
	// EventDied: the sandbox has ended.
	EventDied EventKind = "died"
	// EventOOM: the agent has ended a process because memory ran out inside.
	EventOOM EventKind = "oom"
	// EventInitDied: the init of the users' processes was ended, with all of
	// them; the agent has started a new one.
	EventInitDied EventKind = "init-died"
	// EventHook: a hook of the sandbox's own has run after a restore. What it said is
	// in the detail, quoted.
	EventHook EventKind = "hook"
	// EventHookFailed: one has failed, was ended at its time limit or could not be
	// run; or somebody inside cannot be told of the restore.
	EventHookFailed EventKind = "hook-failed"
	// EventFilesOnly: the sandbox came back by a cold boot from its files.
	EventFilesOnly EventKind = "restored-files"
)

// Package agentapi is what the server's side and the guest agent say to each
// other, and the constants that both must agree on. It is versioned: an image
// keeps the agent that it was made with, so a newer server meets older agents.
//
// The agent listens on two ports of its NIC address:
//
//   - EnvdPort: E2B's envd interface (Connect RPC and HTTP), for users.
//   - ControlPort: HTTP/1.1 for the server alone. The agent answers only
//     connections whose remote address is Gateway, which nothing inside can have.
//     POST /v1/configure (Configure → Configured): begins a generation. Connections
//     of an earlier one are closed, that of the caller excepted. In a life that
//     came from an image it answers when programs have been told: after the hooks,
//     which may take HooksTime.
//     POST /v1/dial?port=N with "Upgrade: cube-dial": connects to 127.0.0.1:N, then
//     [::1]:N, answers 101, and the connection is then that byte stream; half-closes
//     are carried over. 502 with a text when the port is closed.
//     GET  /v1/events: NDJSON of Event, first those with a number above ?after=N.
//     GET  /v1/status (→ Status).
//     POST /v1/files: the body is a tar of a writable layer, which is unpacked over the
//     root file system (→ Unpacked). Before the first configure, and once.
//     POST /v1/quiesce: closes every connection but this one, for an image that
//     must not hold any.
package agentapi

import (
	"net/netip"
	"time"
)

// Version of this protocol. An agent answers requests of this version and of
// every older one. Version 2 added Configure.Restored and Spare; an older agent
// ignores both, and tells nobody.
const Version = 2

// HooksTime is how long the hooks of a life may take together. A server must wait
// longer for the answer to configure.
const HooksTime = 10 * time.Second

// Ports of the agent.
const (
	EnvdPort    = 49983
	ControlPort = 49982
)

// EnvdVersion is what the sandbox API reports as envdVersion; clients gate
// features on it (0.6.13: all that e2b 2.51 asks for).
const EnvdVersion = "0.6.13"

// MountPoint is where the agent's own read-only file system is mounted in the
// root mount namespace. The users' mount namespace does not have it.
const MountPoint = "/boot"

// Every sandbox has the same addresses: none can reach another, so nothing can
// be confused, and an image restores anywhere.
var (
	Guest      = netip.MustParsePrefix("169.254.0.21/30")
	Gateway    = netip.MustParseAddr("169.254.0.22")
	GuestMAC   = [6]byte{2, 0, 0, 0, 0, 1}
	GatewayMAC = [6]byte{2, 0, 0, 0, 0, 2}
)

// MTU of the link, in bytes: the largest that fits a 64 KiB packet of a socketpair.
const MTU = 65000

// Headers of envd's process service that are ours: a client with them can take the output
// of a process up again. Offsets count the bytes of all its streams together.
const (
	// OutputFrom names, in Start and Connect, the offset of the first byte that is wanted,
	// or "tail": from the oldest byte that is kept.
	OutputFrom = "Cube-Output-From"
	// OutputWindow bounds the stream, in bytes, at most 1 MiB: it then ends without an end
	// event, and the client asks again.
	OutputWindow = "Cube-Output-Window"
	// OutputReader is a name that a client gives itself, 1 to 64 visible ASCII characters:
	// a request ends the earlier one of the same name, and takes its place.
	OutputReader = "Cube-Output-Reader"
	// OutputLives says in an answer in which lives of the sandbox the output was written.
	// A client sends it back with OutputFrom, and is told when what it has read is no more;
	// with SendSignal it makes sure that no other process of the same number is meant.
	OutputLives = "Cube-Output-Lives"
	// OutputEnd is, with the error out_of_range, the offset from which on a client can go on,
	// or OtherProcess.
	OutputEnd = "Cube-Output-End"
	// OtherProcess says that the process that a client has read is no more, nor what it has
	// written, and that its number is another's: the sandbox was rolled back to before that
	// process, or has begun anew from its files.
	OtherProcess = "other-process"
)

// Configure tells an agent who it is in the life that begins.
type Configure struct {
	Version    int    `json:"version"`
	SandboxID  string `json:"sandboxId"`
	Generation uint64 `json:"generation"`
	Hostname   string `json:"hostname"`
	// Env is set in every process that the agent starts.
	Env map[string]string `json:"env,omitempty"`
	// AccessToken is asked for on EnvdPort; empty: none is.
	AccessToken string `json:"accessToken,omitempty"`
	// User is who runs what no user is named for; empty: "user".
	User string `json:"user,omitempty"`
	// TimeUnixNano is the server's clock.
	TimeUnixNano int64 `json:"timeUnixNano"`
	// SavedUnixNano is when, by the server's clock, the image was saved that this
	// life was restored from; 0 after a cold boot. The time between does not count
	// towards the deadlines of processes.
	SavedUnixNano int64 `json:"savedUnixNano,omitempty"`
	// SameLife: no restore lies between this message and the connections that are
	// open, which therefore stay. The server made them before it froze the sandbox.
	SameLife bool `json:"sameLife,omitempty"`
	// Restored: this life came from an image, so programs are told that it began:
	// hooks, generation file, signals.
	Restored bool `json:"restored,omitempty"`
	// Spare: nobody owns this life yet, so programs are told nothing. Another
	// Configure will follow.
	Spare bool `json:"spare,omitempty"`
	// MemoryBytes and Pids are the limits of the users' processes.
	MemoryBytes int64 `json:"memoryBytes"`
	Pids        int64 `json:"pids"`
}

// Configured is the answer to Configure.
type Configured struct {
	// Version is the highest that the agent speaks.
	Version int `json:"version"`
	// Agent is the version of the program.
	Agent string `json:"agent"`
	// LastEvent is the number of the newest event of before this generation.
	LastEvent uint64 `json:"lastEvent"`
}

// Unpacked says what was put in place.
type Unpacked struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"` // of content, holes included
	// Skipped are extended attributes that the kernel does not take.
	Skipped int64 `json:"skipped,omitempty"`
}

// Event is something that happened inside.
type Event struct {
	Number uint64    `json:"number"`
	Kind   string    `json:"kind"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

// Kinds of event.
const (
	EventOOM      = "oom"
	EventInitDied = "init-died"
	// EventHook is the end of a hook, with what it said, quoted.
	EventHook = "hook"
	// EventHookFailed is a hook that failed or was not run, or a file that should
	// have been a hook or subscription and is none.
	EventHookFailed = "hook-failed"
)

// Status is how the agent is.
type Status struct {
	Generation uint64 `json:"generation"`
	Processes  int    `json:"processes"`
	// MemoryBytes is what the users' processes have committed.
	MemoryBytes int64 `json:"memoryBytes"`
	// InitLate: the users' init has had more than a second for its answer to a request,
	// so no program can be started. It is killed if it goes on for long.
	// Or there has been none for as long, or none could be started.
	InitLate bool `json:"initLate,omitempty"`
	// InitGone is, where InitLate is for want of an init, why there is none.
	InitGone string `json:"initGone,omitempty"`
}

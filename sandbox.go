package cube

import "time"

// State is what a sandbox that the engine holds is doing.
type State string

const (
	// StateRunning: its agent has answered in this life and requests may go in.
	StateRunning State = "running"
	// StateFrozen: all its tasks are stopped, its memory is held. A verb that
	// needs this (Pause, Rollback) puts a sandbox into it and takes it out again.
	StateFrozen State = "frozen"
	// StateDead: its kernel has ended; Sandbox.Death says why. It stays listed
	// until Kill so that nobody has to guess what became of it.
	StateDead State = "dead"
)

// Sandbox is one sandbox as the engine sees it.
type Sandbox struct {
	ID         SandboxID  `json:"id"`
	Generation Generation `json:"generation"`
	State      State      `json:"state"`
	// Image is what this life was restored from; empty after a cold boot.
	Image  ImageID `json:"image,omitempty"`
	Limits Limits  `json:"limits"`
	// StartedAt is when this life began.
	StartedAt time.Time `json:"startedAt"`
	// Death is set when State is StateDead.
	Death *Death `json:"death,omitempty"`
}

// Limits bound what a sandbox may use. They are fixed when its template is
// made: memory and CPU count are part of what the guest kernel has been told.
type Limits struct {
	// MemoryMiB is what the guest sees as its memory (128 to 1,048,576 MiB). At
	// 95 % of it the agent inside ends the largest process. The host allows 64 MiB
	// and 384 KiB for each of Pids more, for the guest's kernel, and beyond that
	// ends the sandbox as a whole.
	MemoryMiB int64 `json:"memoryMiB"`
	// CPUs is how many processors the guest sees (1 to 128) and how much CPU
	// time it may take.
	CPUs int `json:"cpus"`
	// DiskMiB bounds the writable layer (64 to 16,777,216 MiB); beyond it writes
	// give ENOSPC inside.
	DiskMiB int64 `json:"diskMiB"`
	// Pids bounds the processes and threads of the guest's users (16 to 4,194,304).
	Pids int64 `json:"pids"`
}

// DefaultLimits are those of a template whose definition names none.
func DefaultLimits() Limits {
	return Limits{MemoryMiB: 512, CPUs: 2, DiskMiB: 10 << 10, Pids: 1024}
}

// Identity is what a copy of a sandbox must not share with its original, and
// what a rollback must not bring back: it lives outside of every image and is
// told to the agent after each restore, before anything else gets in.
type Identity struct {
	// Hostname inside; empty means the first 12 digits of the sandbox id.
	Hostname string `json:"hostname,omitempty"`
	// Env is set in every process that the agent starts, below what the request sets.
	Env map[string]string `json:"env,omitempty"`
	// AccessToken is what envd requests must carry as X-Access-Token; empty
	// means that none is asked for.
	AccessToken string `json:"accessToken,omitempty"`
	// User is who runs what no user is named for; empty: "user".
	User string `json:"user,omitempty"`
}

// Death says how a sandbox ended.
type Death struct {
	Reason DeathReason `json:"reason"`
	// Detail is one line for a person: exit status, signal, last words of the kernel.
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
}

// DeathReason is why a sandbox is dead.
type DeathReason string

const (
	// DeathKilled: Kill was called.
	DeathKilled DeathReason = "killed"
	// DeathTimeout: its time was over.
	DeathTimeout DeathReason = "timeout"
	// DeathOOM: the host's memory limit was reached.
	DeathOOM DeathReason = "oom"
	// DeathExit: process 1 inside ended.
	DeathExit DeathReason = "exit"
	// DeathSignal: the sentry was ended by a signal that was not ours.
	DeathSignal DeathReason = "signal"
	// DeathCrash: the sentry ended with an error of its own.
	DeathCrash DeathReason = "crash"
	// DeathImage: the image could not be loaded completely.
	DeathImage DeathReason = "image"
	// DeathMachine: the machine was restarted, or lost power.
	DeathMachine DeathReason = "machine"
	// DeathUnknown: it ended while no keeper was there to see it.
	DeathUnknown DeathReason = "unknown"
)

// Usage is what a sandbox takes from the host at one moment.
type Usage struct {
	// HostMemory is what its memory cgroup is charged, in bytes: kernel, stubs
	// and guest pages.
	HostMemory int64 `json:"hostMemory"`
	// GuestMemory is what the guest has committed, in bytes, its files excluded, and what
	// it shares included.
	GuestMemory int64 `json:"guestMemory"`
	// GuestFiles is what its writable layer takes, in bytes.
	GuestFiles int64 `json:"guestFiles"`
	// SharedMemory is how much of GuestMemory lies in the pages of images, in bytes: all
	// who have it use it where it lies. SharedFiles is the same of its files, beside
	// GuestFiles.
	SharedMemory int64 `json:"sharedMemory,omitempty"`
	SharedFiles  int64 `json:"sharedFiles,omitempty"`
	// CPU is the CPU time since this life began.
	CPU time.Duration `json:"cpu"`
}
